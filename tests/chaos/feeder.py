"""The feeder: fills the queue while queries read it, never far ahead of the slowest of them.

It is the only one that knows which rows are in the queue, so it makes sure: a request whose answer is
lost is looked up in the tablets' row counts and repeated only if it had no effect.
"""

import random
import threading
from collections.abc import Callable

from yt.wrapper import YtClient

from tests.chaos.stage import Stage

_BATCHES_AHEAD = 3
_PAUSE_SECONDS = 0.05


class Feeder(threading.Thread):
    """Appends rows until it is told to stop.

    Args:
        patient: client that repeats reads.
        progress: returns how many rows the slowest query has taken.
    """

    def __init__(
        self, stage: Stage, once: YtClient, patient: YtClient, progress: Callable[[], int]
    ) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self._stage = stage
        self._once = once
        self._patient = patient
        self._progress = progress
        self._chance = random.Random(f"{stage.plan.seed}/feeder")
        self._stop_feeding = threading.Event()

    @property
    def fed(self) -> int:
        """Rows in the queue."""
        return sum(map(len, self._stage.queue.rows))

    def run(self) -> None:
        plan = self._stage.plan
        most = plan.rows_per_partition * plan.partitions * _BATCHES_AHEAD
        try:
            while not self._stop_feeding.wait(_PAUSE_SECONDS):
                if self.fed - self._progress() < most:
                    self._append()
        except BaseException as error:
            self.error = error
            raise

    def finish(self) -> None:
        """Stop feeding.

        Raises:
            BaseException: what ended it before.
        """
        self._stop_feeding.set()
        self.join()
        if self.error is not None:
            raise self.error

    def _append(self) -> None:
        plan, queue = self._stage.plan, self._stage.queue
        most = plan.rows_per_partition
        alike = self._chance.randint(1, most)
        counts = [alike if plan.even else self._chance.randint(0, most) for _ in queue.rows]
        fresh = [queue.next_rows(count, partition) for partition, count in enumerate(counts)]
        batch = [
            {**row, "$tablet_index": partition}
            for partition, rows in enumerate(fresh)
            for row in rows
        ]
        while batch and not self._inserted(batch, counts):
            pass
        for kept, rows in zip(queue.rows, fresh, strict=True):
            kept.extend(rows)

    def _inserted(self, batch: list[dict[str, object]], counts: list[int]) -> bool:
        """Insert rows in one transaction; tell whether they are in the queue now."""
        queue = self._stage.queue
        try:
            self._once.insert_rows(queue.path, batch)
        except Exception:  # noqa: BLE001 - whatever went wrong, the counts tell its outcome
            before = [len(rows) for rows in queue.rows]
            after = [old + new for old, new in zip(before, counts, strict=True)]
            found = self._patient.get_tablet_infos(queue.path, list(range(len(before))))
            have = [int(tablet["total_row_count"]) for tablet in found["tablets"]]
            if have == before:
                return False
            if have != after:
                raise RuntimeError(
                    f"The queue has {have} rows, expected {before} or {after}"
                ) from None
        return True
