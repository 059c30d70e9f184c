"""The claim that a table holds nothing but the rows of a batch (`write="replace"`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from yt_exactly_once.codec.changes import keys_besides
from yt_exactly_once.codec.rows import Fragments
from yt_exactly_once.codec.schema import WritePlan
from yt_exactly_once.codec.yson_fragments import joined
from yt_exactly_once.commit.cluster import Payload, Transaction
from yt_exactly_once.errors import BatchTooLargeError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_DELETE = 50_000
"""Keys in one delete request."""


@dataclass(frozen=True)
class CompleteResult:
    """All rows that a table holds after the commit: those that it has besides are deleted.

    Every attempt reads the table's keys inside its transaction, as of the start. Keys are compared as the
    bytes they are written as, so both sides use the same codec.

    Attributes:
        keys: fragments of YSON, one per row of the result; or hashes of them, where the driver has no rows.
        row_limit: most rows that one transaction can touch in the table.
    """

    plan: WritePlan
    keys: Fragments | pa.FixedSizeBinaryArray
    row_limit: int

    def surplus(self, transaction: Transaction) -> list[Payload]:
        """Return deletes for rows that the result lacks; raise `BatchTooLargeError` if there are too many."""
        path = self.plan.target
        # A table with more rows than that has too many to delete, whichever they are.
        rows = transaction.select(path, self.plan.names, limit=self.row_limit + 1)
        stale = keys_besides(self.keys, rows, self.plan)
        if len(stale) + len(self.keys) > self.row_limit:
            raise BatchTooLargeError(
                f"The result has {len(self.keys)} rows and replaces at least {len(stale)} others, but "
                f"one transaction takes only {self.row_limit} rows",
                remedy="Empty the table before the first batch, or give it more tablets",
                target=path,
            )
        return [
            Payload(len(piece), joined(piece), deletes=True)
            for piece in (
                stale.slice(start, ROWS_PER_DELETE)
                for start in range(0, len(stale), ROWS_PER_DELETE)
            )
        ]
