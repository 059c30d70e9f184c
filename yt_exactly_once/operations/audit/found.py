"""What an audit compares, and what it has found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from yt_exactly_once.codec.schema import SOURCE_ROW_COLUMN, SOURCE_TABLET_COLUMN


class By(StrEnum):
    """What a target is compared with."""

    SOURCE = "source"
    """With its queues, row by row: columns of the target say where each row came from."""

    DIGEST = "digest"
    """With the digest of all written rows that the ledger keeps."""

    COUNT = "count"
    """With the number of rows in the ledger, which hides changed rows, and a lost beside a repeated one."""

    SEQUENCE = "sequence"
    """With its tombstones, where rows were changes: a row must be newer than the delete of its key."""


class Verdict(StrEnum):
    """What an audit amounts to."""

    EXACT = "exact"
    """Every row is proven to be there once, with its values."""

    UNPROVEN = "NOT proven"
    """Nothing is wrong as far as was compared, which says too little."""

    WRONG = "NOT exact"
    """Rows are lost, repeated, changed or of unknown origin."""


@dataclass(frozen=True)
class SourceColumns:
    """Where a target keeps the source of its rows.

    Attributes:
        row: column with the index of the row in that partition.
        queue: column with the path of the queue; not needed if the queries have read only one.
    """

    partition: str = SOURCE_TABLET_COLUMN
    row: str = SOURCE_ROW_COLUMN
    queue: str | None = None

    @property
    def names(self) -> list[str]:
        """The columns that there are."""
        return [name for name in (self.partition, self.row, self.queue) if name is not None]


@dataclass(frozen=True)
class PartitionAudit:
    """What was found in one partition of a queue.

    Attributes:
        start: first row that must be there.
        end: first row that need not be there.
        repeated: copies of rows beyond the first.
        compared_from: from which row on values were compared; the queue has trimmed earlier ones.
        unclear_ranges: ranges of `BUCKET` rows that differ, beyond those that were looked into row by row.
    """

    queue: str
    partition: int
    start: int
    end: int
    lost: int
    repeated: int
    changed: int
    compared_from: int
    unclear_ranges: int
    examples: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        queries: queries that have written, as ledger entries say.
        modes: their delivery modes.
        queues: paths of the queues; empty unless rows were compared with them.
        newer: rows beyond the last commit that was known at the start; a query was running.
        unknown: rows whose source is not in a queue, or before the start; and beyond the last commit, if
            every mode is transactional and no batch was committed meanwhile.
        compared: columns whose values were compared.
        partitions: by queue and partition; empty unless rows were compared with the queues.
        expected_rows: rows that the ledger accounts for; `None` if rows were compared with the queues.
        unproven: what the comparison says nothing about, and why.
        is_late: whether a ledger may have begun after rows of its query, so that more rows prove nothing.
        digest: of the rows of the target, or of those of batch jobs; empty unless compared.
        expected_digest: of the rows that the ledger accounts for; empty unless compared.
        job_rows: rows without a source, which batch jobs have written.
        expected_job_rows: rows of batch jobs that the ledger accounts for.
        waiting: dead letters that were not replayed: so many rows may be lost.
        tombstones: how many there are; by sequence only. `rows` are then those that have the key of one.
        outlived: rows that are not newer than the delete of their key.
        is_of_pattern: whether rows name the table, so that its queues have those of other tables too.
    """

    target: str
    by: By
    queries: tuple[str, ...]
    modes: tuple[str, ...]
    rows: int
    queues: tuple[str, ...] = ()
    newer: int = 0
    unknown: int = 0
    compared: tuple[str, ...] = ()
    partitions: tuple[PartitionAudit, ...] = field(default=())
    expected_rows: int | None = None
    digest: str = ""
    expected_digest: str = ""
    unproven: tuple[str, ...] = ()
    is_late: bool = False
    job_rows: int = 0
    expected_job_rows: int = 0
    waiting: int = 0
    tombstones: int = 0
    outlived: int = 0
    is_of_pattern: bool = False

    @property
    def verdict(self) -> Verdict:
        """What it amounts to."""
        if not (self._agrees or self.is_late):
            return Verdict.WRONG
        return Verdict.UNPROVEN if self.unproven else Verdict.EXACT

    @property
    def exact(self) -> bool:
        """Whether it is proven that nothing is lost, repeated, changed or unknown."""
        return self.verdict is Verdict.EXACT

    @property
    def _agrees(self) -> bool:
        if self.by is By.SEQUENCE:
            return not self.outlived
        if self.by is not By.SOURCE:
            return self.rows == self.expected_rows and self.digest == self.expected_digest
        jobs = self.job_rows, self.digest
        return (
            not self.unknown
            and jobs == (self.expected_job_rows, self.expected_digest)
            and sum(one.lost for one in self.partitions) <= self.waiting
            and not any(
                one.repeated or one.changed or one.unclear_ranges for one in self.partitions
            )
        )

    @property
    def remedy(self) -> str:
        """What would prove more."""
        if self.by is By.SEQUENCE:
            return (
                "write the whole queue once more, with a new checkpoint and without a consumer, into an "
                "empty target: it must get the same rows"
            )
        if self.by is By.SOURCE or self.is_of_pattern:
            return (
                "give the target digest=True from its first batch on, and audit by digest: that covers every "
                "column"
            )
        return "keep the source of each row in the target (include_service_columns=true), and audit by source"

    def to_json(self) -> dict[str, Any]:
        """Return everything, for programs."""
        return {**asdict(self), "exact": self.exact, "verdict": self.verdict.value}
