"""What a transaction has buffered: batches of encoded rows, each for one table and from one request.

It makes a batch of the rows of a request. Everything that takes time happens here: encoding, keys, weights.
The commit, which holds up other writers, is then short. It never touches the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import le
from typing import Any, Literal

import pyarrow as pa

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.ql import computed
from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tables.columnar import listed
from yt_exactly_once.local.tables.encoding import DEFAULT_CONVERSIONS, Conversions
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.packed import PackedColumn, packed
from yt_exactly_once.local.tablets import blocks, row_locks, validation
from yt_exactly_once.local.tablets.block_bodies import Page
from yt_exactly_once.local.tablets.row_locks import PRIMARY_LOCK, LockType
from yt_exactly_once.local.tablets.validation import EncodedRows, Row


@dataclass
class Batch:
    """Rows of one request.

    Attributes:
        kind: what happens to the rows.
        layout: the table as it was when the rows came.
        rows: the rows by columns, computed key columns included.
        keys: encoded keys of a sorted table.
        tablet_indexes: where each row of an ordered table goes, or all of them; None is up to the
            commit.
        weights: data weight of each row of an ordered table, as an array.
        pages: the rows instead, if they are many and go to one tablet of an ordered table.
        aggregate: whether aggregate columns combine instead of being replaced.
        locks: lock groups that are taken, with how.
    """

    kind: Literal["write", "delete", "lock"]
    layout: TableLayout
    rows: EncodedRows
    keys: list[bytes] = field(default_factory=list)
    tablet_indexes: list[int | None] | int | None = None
    weights: Any = 0
    pages: Sequence[Page] = ()
    aggregate: bool = False
    locks: dict[str, LockType] = field(default_factory=dict)


def write_batches(
    layout: TableLayout,
    rows: Sequence[Row],
    *,
    update: bool = False,
    aggregate: bool = False,
    lock_type: str = "exclusive",
    conversions: Conversions = DEFAULT_CONVERSIONS,
) -> list[Batch]:
    """Encode the rows of an insert; those of a large one may be several batches.

    Raises:
        YtError: what the proxy refuses at once; the rest travels to the commit.
    """
    lock = row_locks.parse_write(lock_type)
    if not layout.sorted:
        if update:
            raise YtError('Cannot use "update" mode for ordered tables')
        return [append_batch(layout, rows, conversions=conversions)]
    groups: Iterable[EncodedRows] = (
        validation.encode_update(layout, rows, conversions=conversions)
        if update
        else validation.encode_write(layout, rows, conversions=conversions)
    )
    return [
        _with_keys(
            Batch(
                "write",
                layout,
                group,
                aggregate=aggregate,
                locks=_written_locks(layout, group, lock, everything=not update),
            )
        )
        for group in groups
    ]


def append_batch(
    layout: TableLayout, rows: Sequence[Row], *, conversions: Conversions = DEFAULT_CONVERSIONS
) -> Batch:
    """Encode rows for the end of an ordered table."""
    extras = (validation.TABLET_INDEX,)
    parts: list[EncodedRows] = []
    for group in validation.encode_write(layout, rows, extras=extras, conversions=conversions):
        parts.append(_packed(group, everything=bool(parts)))
    if len(parts) > 1:
        parts[0] = _packed(parts[0], everything=True)
    encoded = validation.joined(parts)
    batch = Batch("write", layout, encoded)
    if encoded.error is not None:
        return batch
    if encoded.extras:
        batch.tablet_indexes = _tablet_indexes(encoded.extras[validation.TABLET_INDEX])
    batch.weights = encoded.weights
    is_packed = any(isinstance(column, PackedColumn) for column in encoded.data)
    if not (is_packed or isinstance(batch.tablet_indexes, list)) and blocks.are_worth_packing(
        batch.weights
    ):
        names = [column.name for column in encoded.columns]
        batch.pages = blocks.pack(layout, names, encoded.data, batch.weights)
        batch.rows = replace(encoded, data=[])
    return batch


def _packed(group: EncodedRows, *, everything: bool = False) -> EncodedRows:
    """Compress columns that take far more bytes than what was sent."""
    if group.error is None:
        # One row is often the only one.
        everything = everything or (group.count > 1 and group.size > validation.GROUP_BYTES)
        group.data = packed(group.columns, group.data, everything=everything)
    return group


def _tablet_indexes(given: Any) -> list[int | None] | int | None:
    """Return the tablet of each row; one number where all rows go to the same."""
    if not isinstance(given, list) and not given.null_count and len(given):
        first = given[0].as_py()
        if (given.to_numpy() == first).all():
            return _tablet_index(first)
    indexes = listed(given)
    if not set(map(type, indexes)) <= {int, type(None)}:
        indexes = [_tablet_index(index) for index in indexes]
    distinct = set(indexes)
    return distinct.pop() if len(distinct) == 1 else indexes


def delete_batch(
    layout: TableLayout, rows: Sequence[Row], *, conversions: Conversions = DEFAULT_CONVERSIONS
) -> Batch:
    """Encode the keys of a delete."""
    if not layout.sorted:
        raise YtError(f"Table {layout.path} is not sorted", Code.TABLE_MUST_BE_SORTED)
    encoded = validation.encode_keys(layout, rows, conversions=conversions)
    locks: dict[str, LockType] = dict.fromkeys(layout.locks, "exclusive")
    return _with_keys(Batch("delete", layout, encoded, locks=locks))


def lock_batch(
    layout: TableLayout,
    rows: Sequence[Row],
    locks: Sequence[str],
    lock_type: str,
    *,
    conversions: Conversions = DEFAULT_CONVERSIONS,
) -> Batch:
    """Encode the keys of rows to lock; without names the primary lock is taken, and with it all."""
    if not layout.sorted:
        raise YtError(
            f"Cannot perform lock in a non-sorted table {layout.path}", Code.TABLE_MUST_BE_SORTED
        )
    for name in locks:
        if name not in layout.locks:
            raise YtError(f'Lock group "{name}" not found in schema')
    taken = layout.locks if not locks or PRIMARY_LOCK in locks else tuple(locks)
    encoded = validation.encode_keys(layout, rows, conversions=conversions)
    return _with_keys(
        Batch("lock", layout, encoded, locks=dict.fromkeys(taken, row_locks.parse(lock_type)))
    )


def _written_locks(
    layout: TableLayout, group: EncodedRows, lock: LockType, *, everything: bool
) -> dict[str, LockType]:
    written = {column.lock or PRIMARY_LOCK for column in group.columns if not column.is_key}
    if everything or PRIMARY_LOCK in written or len(layout.locks) == 1:
        return dict.fromkeys(layout.locks, lock)
    return {name: lock for name in layout.locks if name in written}


def _with_keys(batch: Batch) -> Batch:
    if batch.rows.error is None:
        batch.rows = _with_computed_keys(batch.layout, batch.rows)
        batch.keys = _keys(batch.layout, batch.rows)
        _sort(batch)
        batch.rows = _packed(batch.rows)
    return batch


def keys_of(layout: TableLayout, rows: EncodedRows) -> list[bytes]:
    """Return the encoded keys of rows.

    Raises:
        YtError: the rows are not right.
    """
    if rows.error is not None:
        raise rows.error
    return _keys(layout, _with_computed_keys(layout, rows))


def _keys(layout: TableLayout, rows: EncodedRows) -> list[bytes]:
    leading = rows.data[: len(layout.key_columns)]
    encoded: list[bytes] = layout.encode_keys(list(map(vectors.to_stored, leading)))
    return encoded


def _sort(batch: Batch) -> None:
    """Bring rows into the order of the table, where SQLite writes them several times faster."""
    keys = batch.keys
    if all(map(le, keys, islice(keys, 1, None))):
        return
    # The sort is stable, so rows of one key keep their order.
    order = sorted(range(len(keys)), key=keys.__getitem__)
    batch.keys = [keys[index] for index in order]
    places = pa.array(order)
    columns = [
        [column[index] for index in order] if isinstance(column, list) else column.take(places)
        for column in batch.rows.data
    ]
    batch.rows = replace(batch.rows, data=columns)


def _with_computed_keys(layout: TableLayout, rows: EncodedRows) -> EncodedRows:
    """Fill computed key columns in, so that the keys lead the columns as in the schema."""
    if all(column.expression is None for column in layout.key_columns):
        return rows
    pairs = list(zip(rows.columns, rows.data, strict=True))
    keys = {column.name: vectors.to_stored(array) for column, array in pairs if column.is_key}
    filled = computed.fill(layout.key_columns, keys, rows.count)
    values = [pair for pair in pairs if not pair[0].is_key]
    return replace(
        rows,
        columns=(*layout.key_columns, *(column for column, _ in values)),
        data=[
            *(vectors.of_stored(column, filled[column.name]) for column in layout.key_columns),
            *(array for _, array in values),
        ],
    )


def _tablet_index(index: Any) -> int | None:
    if index is None:
        return None
    if isinstance(index, bool) or not isinstance(index, int):
        raise YtError(
            "Error while performing type conversion",
            Code.SCHEMA_VIOLATION,
            {"column": validation.TABLET_INDEX, "column_type": "int64"},
        )
    return int(index)
