"""The comparison of a target with its tombstones: a row must be newer than the delete of its key.

It needs neither the queue nor a stopped query. The sequence of a key only grows: whatever a running query
does between the two reads, the row that is read later is newer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from yt_exactly_once.codec.newest import ChangeRule
from yt_exactly_once.codec.rows import row_fragments
from yt_exactly_once.codec.schema import TableSchema, check_frame
from yt_exactly_once.codec.yson_fragments import joined
from yt_exactly_once.operations.audit.by_digest import modes_of
from yt_exactly_once.operations.audit.found import Audit, By
from yt_exactly_once.operations.audit.ranges import RangeReader, fields_of
from yt_exactly_once.ytsaurus.tombstones import require_tombstones

if TYPE_CHECKING:
    import pyarrow as pa

    from yt_exactly_once.operations.ledgers import Entries
    from yt_exactly_once.ytsaurus.tables import TableInfo

_UNPROVEN = (
    "that no change is missing: of each key the target has the newest change alone, and no ledger could keep "
    "a digest of rows that later ones replace"
)


def against_tombstones(reader: RangeReader, info: TableInfo, entries: Entries) -> Audit:
    """Find rows of a target that are not newer than the delete of their key.

    Raises what `require_tombstones` raises.
    """
    beside = require_tombstones(reader.connection, info, info.sequence)
    beside.require_mounted()
    table = TableSchema.from_yt(beside.schema)
    schema = fields_of(beside, [column.name for column in table.writable_columns])
    plan = check_frame(schema, table, target=info.path, sorted=True)
    rule = ChangeRule(plan, info.sequence)
    tombstones = rows = outlived = 0
    for batch in reader.keys(beside, schema, 0):
        deleted = batch.select(schema.names)
        live = _live(reader, info, rule, deleted)
        tombstones += deleted.num_rows
        rows += live.num_rows
        outlived += live.num_rows - _newer(live, deleted, rule)
    return Audit(
        target=info.path,
        by=By.SEQUENCE,
        queries=tuple(row.entry.query_id for row in entries),
        modes=modes_of(entries),
        rows=rows,
        compared=info.sequence,
        tombstones=tombstones,
        outlived=outlived,
        unproven=(_UNPROVEN,),
    )


def _live(
    reader: RangeReader, info: TableInfo, rule: ChangeRule, deleted: pa.RecordBatch
) -> pa.RecordBatch:
    """Return the rows of the target that have the keys of tombstones, as they are after these were read."""
    keys = joined(row_fragments(deleted, rule.plan.keys))
    with reader.connection.transaction() as transaction:
        return rule.decoded(transaction.lookup_columns(info.path, keys, rule.tombstone.names))


def _newer(live: pa.RecordBatch, deleted: pa.RecordBatch, rule: ChangeRule) -> int:
    """Return how many rows are newer than the tombstones of their keys; one without a sequence is not."""
    newer = rule.newer(live, row_fragments(live, rule.plan.keys), [deleted])
    for name in rule.sequence:
        newer = pc.and_(newer, live.column(name).is_valid())
    return int(newer.true_count)
