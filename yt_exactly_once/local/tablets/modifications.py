"""What a transaction has buffered: batches of encoded rows, each for one table and from one request.

It makes a batch of the rows of a request. Everything that takes time happens here: encoding, keys, weights.
The commit, which holds up other writers, is then short. It never touches the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import le
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.ql import computed
from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tables.columnar import listed
from yt_exactly_once.local.tables.encoding import DEFAULT_CONVERSIONS, Conversions
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.packed import packed, unpacked
from yt_exactly_once.local.tablets import blocks, row_locks, validation
from yt_exactly_once.local.tablets.block_bodies import Page
from yt_exactly_once.local.tablets.row_locks import PRIMARY_LOCK, LockType
from yt_exactly_once.local.tablets.validation import EncodedRows, Row


class Part(NamedTuple):
    """Rows of a request for one tablet of an ordered table: its columns, or pages if the rows are many.

    Attributes:
        tablet: index of the tablet; None is up to the commit, which chooses one for a whole batch.
        named: tablet of each row, -1 for none, where the commit may choose one that others name.
        rows: how many.
        columns: stored values by name.
        weights: data weight of each row, as an array.
    """

    tablet: int | None
    rows: int
    columns: Mapping[str, Any]
    weights: Any
    pages: Sequence[Page] = ()
    named: Any = None

    def placed(self, chosen: int) -> Iterator[Part]:
        """Yield the rows by tablet, those that name none in the chosen one; they keep their order."""
        if self.named is None:
            yield self if self.tablet is not None else self._replace(tablet=chosen)
            return
        tablets = np.where(self.named < 0, chosen, self.named)
        columns = {name: unpacked(stored) for name, stored in self.columns.items()}
        for tablet in np.unique(tablets):
            places = np.flatnonzero(tablets == tablet)
            taken = {name: array.take(pa.array(places)) for name, array in columns.items()}
            yield Part(int(tablet), len(places), taken, self.weights[places])


@dataclass
class Batch:
    """Rows of one request.

    Attributes:
        kind: what happens to the rows.
        layout: the table as it was when the rows came.
        rows: the rows by columns, computed key columns included; only their number if there are parts.
        keys: encoded keys of a sorted table.
        parts: the rows of an ordered table.
        aggregate: whether aggregate columns combine instead of being replaced.
        locks: lock groups that are taken, with how.
    """

    kind: Literal["write", "delete", "lock"]
    layout: TableLayout
    rows: EncodedRows
    keys: list[bytes] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
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
    batch = Batch("write", layout, EncodedRows((), [], 0))
    for group in validation.encode_write(layout, rows, conversions=conversions):
        batch.rows.count += group.count
        batch.rows.error = group.error
        if group.error is None:
            batch.parts += _parts(layout, group)
    return batch


def _parts(layout: TableLayout, group: EncodedRows) -> Iterator[Part]:
    """Part rows by the tablets that they name, keeping their order."""
    indexes = [None] if group.tablets is None else _tablet_indexes(group.tablets)
    distinct = set(indexes) or {None}
    unknown = distinct - {None, *range(layout.tablet_count)}
    if len(distinct) == 1 or unknown:
        # The commit refuses a tablet that is not there.
        yield _part(layout, group, (unknown or distinct).pop())
        return
    named = np.array([-1 if index is None else index for index in indexes])
    if None in distinct:
        yield _part(layout, group, None, named)
        return
    for index in distinct:
        yield _part(layout, _taken(group, np.flatnonzero(named == index)), index)


def _part(layout: TableLayout, group: EncodedRows, tablet: int | None, named: Any = None) -> Part:
    """Pack rows if they are many; values in pieces wait for the commit, and so does a choice."""
    names = [column.name for column in group.columns]
    is_large = group.size > validation.GROUP_BYTES
    in_pieces = any(isinstance(stored, list) for stored in group.data)
    if named is None and not in_pieces and (is_large or blocks.are_worth_packing(group.weights)):
        pages = blocks.pack(layout, dict(zip(names, group.data, strict=True)), group.weights)
        return Part(tablet, group.count, {}, group.weights[:0], pages)
    columns = packed(group.columns, group.data, everything=is_large and group.count > 1)
    by_name = dict(zip(names, columns, strict=True))
    return Part(tablet, group.count, by_name, group.weights, named=named)


def _tablet_indexes(given: Any) -> list[int | None]:
    """Return the tablet of each row, or the only one of an array."""
    if not isinstance(given, list) and not given.null_count and len(given):
        given = given[:1] if (given.to_numpy() == given[0].as_py()).all() else given
    indexes = listed(given)
    if not set(map(type, indexes)) <= {int, type(None)}:
        indexes = [_tablet_index(index) for index in indexes]
    return indexes


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
        rows = batch.rows
        # One row is often the only one.
        everything = rows.count > 1 and rows.size > validation.GROUP_BYTES
        rows.data = packed(rows.columns, rows.data, everything=everything)
    return batch


def keys_of(
    layout: TableLayout, rows: Sequence[Row], conversions: Conversions = DEFAULT_CONVERSIONS
) -> list[bytes]:
    """Return the encoded keys of rows, or raise what is wrong with them."""
    encoded = validation.encode_keys(layout, rows, conversions=conversions)
    if encoded.error is not None:
        raise encoded.error
    return _keys(layout, _with_computed_keys(layout, encoded))


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
    batch.rows = _taken(batch.rows, order)


def _taken(rows: EncodedRows, order: Any) -> EncodedRows:
    """Return some rows, in an order."""
    places = pa.array(order)
    data = [
        [stored[place] for place in order] if isinstance(stored, list) else stored.take(places)
        for stored in rows.data
    ]
    weights = None if rows.weights is None else rows.weights[order]
    return replace(rows, data=data, count=len(order), weights=weights)


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
