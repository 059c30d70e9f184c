"""Orders to fail, for user code inside Spark tasks: a file in a folder, carried out by whoever takes it."""

import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyarrow import RecordBatch

FAIL = "fail"
KILL = "kill"


@dataclass(frozen=True)
class Trouble:
    """A step of a query that passes rows on and, on order, fails its task or kills its worker.

    Attributes:
        folder: where orders are put, one file each.
    """

    folder: str

    def order(self, kind: str, number: int) -> Path:
        """Order one failure; the file is there until a task has taken it."""
        path = Path(self.folder, f"{kind}-{number}")
        path.touch()
        return path

    def __call__(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Pass rows on; what is ordered happens with some of them on their way already."""
        for batch in batches:
            yield batch
            self._obey()

    def _obey(self) -> None:
        for order in sorted(Path(self.folder).iterdir()):
            try:
                order.unlink()
            except FileNotFoundError:
                # Another task took it.
                continue
            if order.name.startswith(KILL):
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError(f"Failed on order {order.name}")
