"""Whether a replay gives the rows that tasks have pushed before: found out before anything is pushed.

Only a batch that was begun and not finished is looked at, so that the DataFrame is computed twice then. The
first time no task asks the cluster for anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructType

from yt_exactly_once.spark.sink.row_digest import added, spelled
from yt_exactly_once.spark.sink.sessions import other_rows
from yt_exactly_once.spark.sink.tasks import partition_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from yt_exactly_once.spark.sink.sessions import Numbering
    from yt_exactly_once.spark.sink.tasks import TaskSettings
    from yt_exactly_once.ytsaurus.rows import SessionState

REHEARSAL_SCHEMA = (
    StructType()
    .add("session", StringType())
    .add("partition", LongType())
    .add("digest", StringType())
)
"""What a task tells the driver, one row per session."""

_REPORT = pa.schema([("session", pa.string()), ("partition", pa.int64()), ("digest", pa.string())])


@dataclass(frozen=True)
class RehearsalTask:
    """Tells for each session the digest of those rows of the task that the session has.

    Attributes:
        settings: see there.
        numbering: how rows are numbered.
        last: number of the last row of each session, by its name.
    """

    settings: TaskSettings
    numbering: Numbering
    last: Mapping[str, int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compute all rows of the task; write nothing."""
        partition, digests = partition_id(), dict[str, int]()
        for parts in self.numbering.numbered(self.settings.chunks(batches), partition):
            for part in parts:
                seen = part.numbers <= self.last.get(part.session, -1)
                digests[part.session] = added(digests.get(part.session, 0), part.parts[seen])
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(list(digests), pa.string()),
                pa.array(np.full(len(digests), partition), pa.int64()),
                pa.array([spelled(digest) for digest in digests.values()], pa.string()),
            ],
            schema=_REPORT,
        )


def require_same_rows(
    reports: Iterable[Mapping[str, Any]],
    begun: Mapping[str, SessionState],
    numbering: Numbering,
    target: str,
) -> None:
    """Compare what a replay gives with what sessions have.

    Raises:
        NotOneToOneError: a session has other rows, or more.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for report in reports:
        found.setdefault(report["session"], []).append(report)
    for name, state in begun.items():
        tasks = found.get(name, [])
        if len(tasks) == 1 and tasks[0]["digest"] == state.digest:
            continue
        if not tasks:
            why = "no task of this replay gives them"
        elif len(tasks) > 1:
            partitions = " and ".join(str(report["partition"]) for report in tasks)
            why = f"this replay gives them in the Spark partitions {partitions}"
        else:
            why = "this replay gives other rows in their place, or in another order"
        raise other_rows(why, numbering, target, name)
