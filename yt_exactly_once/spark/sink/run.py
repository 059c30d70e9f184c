"""What a sink remembers of one run of one query; a sink may serve several queries at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.rows import SessionState

LOOK_INTERVAL = 10.0
"""Seconds after which a target is looked at again: it may have been replaced by another table."""


@dataclass
class QueryRun:
    """One run of one query.

    Attributes:
        id: of the run.
        targets: as they were prepared; empty before.
        schema: of the frame they were prepared for.
        looked_at: when the targets were looked at last.
        agreed: the newest batch about which sink and ledger agree; `None` before the first.
        begun: by target, the producer sessions that had rows of the newest batch before it was computed.
    """

    id: str
    targets: tuple[PreparedTarget, ...] = ()
    schema: StructType | None = None
    looked_at: float = 0.0
    agreed: int | None = None
    begun: dict[str, dict[str, SessionState]] = field(default_factory=dict)

    def goes_on_with(self, batch: MicroBatch) -> bool:
        """Tell whether a batch comes after the ones that were agreed about."""
        return self.agreed is not None and self.agreed < batch.batch_id

    def agree(self, batch: MicroBatch) -> None:
        """Take note that the ledger does not contradict a batch."""
        self.agreed = batch.batch_id

    def prepared(self, schema: StructType, targets: tuple[PreparedTarget, ...]) -> None:
        """Take note of targets that are prepared for frames of a schema."""
        self.schema, self.targets, self.looked_at = schema, targets, time.monotonic()

    def must_look(self) -> bool:
        """Tell whether it is time to look at the targets again."""
        return time.monotonic() - self.looked_at > LOOK_INTERVAL
