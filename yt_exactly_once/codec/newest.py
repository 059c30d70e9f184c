"""Of the changes of each key the newest by its sequence, and whether it is newer than what is stored.

The order of the rows makes no difference. Everything is done on whole arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.rows import (
    Fragments,
    WireFormat,
    check_column,
    coordinates,
    decode,
    row_fragments,
    value_at,
)
from yt_exactly_once.codec.schema import TableSchema, WritePlan, arrow_schema_of
from yt_exactly_once.codec.types import plain_scalar_of
from yt_exactly_once.codec.values import first_true
from yt_exactly_once.errors import AmbiguousOrderError, EncodingError

_DELETE = b"-"
"""What a delete does, beside the rows of others."""


@dataclass(frozen=True)
class ChangeRule:
    """What the columns of changes mean.

    Attributes:
        plan: how a row is written.
        sequence: columns that order the changes of a key.
        operation: says what a row does; `None` if every row is written.
        delete: values of the operation that delete.
        upsert: values of the operation that write.
    """

    plan: WritePlan
    sequence: tuple[str, ...]
    operation: str | None = None
    delete: tuple[str, ...] = ()
    upsert: tuple[str, ...] = ()

    @cached_property
    def tombstone(self) -> WritePlan:
        """How the key and the sequence of a row are written."""
        columns = self.plan.columns
        kept = tuple(each for each in columns if each.is_key or each.name in self.sequence)
        return replace(self.plan, columns=kept)

    def sequences(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of the sequence as the cluster counts them, the same for read and new rows."""
        columns = {column.name: column for column in self.plan.columns}
        return [check_column(rows, columns[name], WireFormat.ARROW) for name in self.sequence]

    def decoded(self, rows: bytes) -> pa.RecordBatch:
        """Return keys and sequences that were read from a table."""
        columns = TableSchema(self.tombstone.columns)
        return decode(rows, arrow_schema_of(columns, binary_strings=True))

    def newer(
        self, rows: pa.RecordBatch, keys: Fragments, stored: Sequence[pa.RecordBatch]
    ) -> pa.BooleanArray:
        """Return which rows are newer than all stored ones of their key; one without a sequence is older.

        Args:
            keys: of the rows, each once.
            stored: keys and sequences of rows with some of these keys.
        """
        found = np.ones(len(keys), np.bool_)
        own = self.sequences(rows)
        for batch in stored:
            positions = pc.index_in(row_fragments(batch, self.plan.keys), value_set=keys)
            is_newer = pa.repeat(pa.scalar(value=False), batch.num_rows)
            is_same = pa.repeat(pa.scalar(value=True), batch.num_rows)
            for given, there in zip(own, self.sequences(batch), strict=True):
                ours = given.take(positions)
                is_newer = pc.or_(
                    is_newer, pc.and_(is_same, pc.fill_null(pc.greater(ours, there), True))
                )
                is_same = pc.and_(is_same, pc.fill_null(pc.equal(ours, there), False))
            found[positions.filter(pc.invert(is_newer)).to_numpy()] = False
        return pa.array(found)

    def deletes(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Return which rows delete; raise `EncodingError` if a row does neither that nor write."""
        if self.operation is None:
            return pa.repeat(pa.scalar(value=False), rows.num_rows)
        operation = rows.column(self.operation)
        deletes = pc.is_in(operation, pa.array(self.delete, operation.type))
        writes = pc.is_in(operation, pa.array(self.upsert, operation.type))
        wrong = first_true(pc.invert(pc.or_(deletes, writes)))
        if wrong is not None:
            known = ", ".join((*self.upsert, *self.delete))
            raise EncodingError(
                f"The operation {self.operation} of a change is none of: {known}",
                remedy="Name its values in delete and upsert of changes, or filter such rows out",
                column=self.operation,
                target=self.plan.target,
                value=repr(value_at(operation, wrong)) if self.plan.shows_values else None,
                **coordinates(rows, wrong),
            )
        return deletes

    def require_key(self, rows: pa.RecordBatch) -> None:
        """Raise `EncodingError` if the whole key of a row is null: the change names no row."""
        names = self.plan.keys.names
        missing = first_true(reduce(pc.and_, (rows.column(name).is_null() for name in names)))
        if missing is not None:
            raise EncodingError(
                f"The key of a change is null: {', '.join(names)}",
                remedy="Check that the query reads the key where the messages have it: names in JSON differ "
                "by case, and PostgreSQL sends no key of a deleted row with REPLICA IDENTITY NOTHING. Filter "
                "out rows that are no changes",
                column=names[0],
                target=self.plan.target,
                **coordinates(rows, missing),
            )

    def require_sequence(self, rows: pa.RecordBatch) -> None:
        """Raise `EncodingError` if the sequence of a row is null."""
        for name in self.sequence:
            missing = first_true(rows.column(name).is_null())
            if missing is not None:
                raise EncodingError(
                    f"The sequence {name} of a change is null",
                    remedy="Filter such rows out, or name a column that every change has",
                    column=name,
                    target=self.plan.target,
                    **coordinates(rows, missing),
                )


def is_ordered(plan: WritePlan, name: str) -> bool:
    """Return whether the values of a column have an order: numbers, moments, and text by its bytes."""
    kinds = {column.name: plain_scalar_of(column.type) for column in plan.columns}
    kind = kinds[name]
    return kind is not None and (
        kind.bounds is not None
        or pa.types.is_decimal(kind.plain)
        or kind.name in {"string", "utf8"}
    )


def newest(rows: pa.RecordBatch, rule: ChangeRule) -> pa.RecordBatch:
    """Return the rows with the newest sequence of their key, in any order.

    Rows that do the same come once. If others have the same sequence, all of them are there.

    Raises:
        EncodingError: a row has no sequence, no operation that is known, or a bad key.
    """
    rule.require_sequence(rows)
    deletes = rule.deletes(rows)
    rule.require_key(rows)
    if rows.num_rows == 0:
        return rows
    codes = row_fragments(rows, rule.plan.keys).dictionary_encode().indices
    names = [str(number) for number in range(len(rule.sequence) + 1)]
    sorted_by = pa.table([codes, *rule.sequences(rows)], names)
    order = pc.sort_indices(sorted_by, [(name, "ascending") for name in names])
    ordered = sorted_by.take(order)
    same_key = _as_before(ordered.column("0"))
    same = np.logical_and.reduce([same_key, *map(_as_before, ordered.columns[1:])])
    # Runs of one key, and in them runs of one sequence: of each key the last of these.
    key_run, run = np.cumsum(~same_key), np.cumsum(~same)
    last = np.append(~same_key[1:], True)
    kept = run == run[last][key_run - key_run[0]]
    positions = order.to_numpy()
    if kept.sum() > last.sum():
        several = np.flatnonzero(kept & (same | np.append(same[1:], False)))
        kept[several] = False
        content = _content(rows, deletes, positions[several], rule)
        pairs = pa.table([key_run[several], content, several], ["key", "content", "position"])
        once = pairs.group_by(["key", "content"]).aggregate([("position", "min")])
        kept[once.column("position_min").to_numpy()] = True
    return rows.take(pa.array(positions[kept]))


def _as_before(column: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each value whether it is the same as the one before."""
    same = pc.equal(column.slice(1), column.slice(0, len(column) - 1))
    return np.append(False, same.to_numpy())


def _content(
    rows: pa.RecordBatch, deletes: pa.BooleanArray, positions: Any, rule: ChangeRule
) -> pa.Array:
    """Return what some rows do, with equal bytes where they do the same."""
    chosen = pa.array(positions)
    does_delete, picked = deletes.take(chosen), rows.take(chosen)
    written = pc.indices_nonzero(pc.invert(does_delete))
    content = np.full(len(chosen), _DELETE, object)
    content[written.to_numpy()] = row_fragments(picked.take(written), rule.plan).to_numpy(
        zero_copy_only=False
    )
    return pa.array(content, pa.large_binary())


@dataclass(frozen=True)
class LatestChanges:
    """The newest change of each key in a batch, and what of it is newer than stored rows.

    Attributes:
        rows: one for each key.
        keys: of each row, as a fragment of YSON.
        deletes: whether a row deletes.
    """

    rule: ChangeRule
    rows: pa.RecordBatch
    keys: Fragments
    deletes: pa.BooleanArray

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch], rule: ChangeRule) -> LatestChanges:
        """Return the newest changes among the rows of all batches, at least one.

        Raises:
            AmbiguousOrderError: two changes of one key have the same sequence and do different things.
            EncodingError: see `newest`.
        """
        latest = newest(pa.concat_batches([newest(rows, rule) for rows in batches]), rule)
        keys = row_fragments(latest, rule.plan.keys)
        repeated = len(keys) - len(pc.unique(keys))
        if repeated:
            raise AmbiguousOrderError(
                f"{repeated} changes have the key and the sequence of another one of the batch, and do "
                "something else: which one is newer is not known",
                remedy="Name a further column in sequence of changes that tells them apart, such as the "
                "position within the transaction of the source",
                target=rule.plan.target,
            )
        return cls(rule, latest, keys, rule.deletes(latest))

    def newer(self, stored: Sequence[pa.RecordBatch]) -> pa.BooleanArray:
        """Return which changes are newer than all stored rows of their key, see `ChangeRule.newer`."""
        return self.rule.newer(self.rows, self.keys, stored)
