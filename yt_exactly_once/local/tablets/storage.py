"""The SQL tables and tablet records behind a dynamic table: how they are created.

Owns the DDL. What may be created is decided elsewhere (`lifecycle`, `shape`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from sqlite3 import Connection
from typing import Any

from yt.yson import YsonUint64

from yt_exactly_once.local import arguments
from yt_exactly_once.local.cypress.ids import make_id
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables import keys, values
from yt_exactly_once.local.tables.encoding import Conversions, encode_column
from yt_exactly_once.local.tables.layout import VERSION_COLUMNS, TableLayout, quote
from yt_exactly_once.local.tables.schema import TableSchema
from yt_exactly_once.local.tablets import flushed

TRIMMED = ("trimmed_row_counts", "cumulative_data_weights")
"""What new tablets of an ordered table begin with; one number for each."""

_INTEGERS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}

_MAX_COLUMNS = 1_900
"""SQLite takes 2 000 (`SQLITE_MAX_COLUMN`), and some are ours."""

_RESERVED = frozenset((*VERSION_COLUMNS, "$until", "$tablet_index", "$row_index"))


def sql_names(schema: TableSchema, known: dict[str, str] | None = None) -> tuple[str, ...]:
    """Choose an SQL column per schema column; SQL ignores case, YTsaurus does not."""
    names = dict(known or {})
    taken = {name.lower() for name in names.values()} | _RESERVED
    for column in schema.columns:
        if column.name in names:
            continue
        base = column.name.replace("\0", "")
        name, number = base, 1
        while name.lower() in taken:
            number += 1
            name = f"{base.removeprefix('$')}#{number}"
        taken.add(name.lower())
        names[column.name] = name
    return tuple(names[column.name] for column in schema.columns)


def create_storage(
    connection: Connection, node_id: str, schema: TableSchema, names: Sequence[str]
) -> None:
    """Create the SQL tables of a dynamic table; rows of an ordered one are in `blocks`.

    Raises:
        YtError: it has more columns than SQLite takes; a row may have 1 024 values in any case.
    """
    if len(names) > _MAX_COLUMNS:
        raise YtError(
            f"The embedded cluster keeps dynamic tables of up to {_MAX_COLUMNS} columns, "
            f"and this schema has {len(names)}"
        )
    if not schema.is_sorted:
        return
    layout = TableLayout(node_id, node_id, schema, tuple(names), ())
    columns = "".join(f", {quote(name)}" for name in names)
    connection.execute(
        f'CREATE TABLE {layout.sql_table} ("$key" BLOB PRIMARY KEY, "$ts" INTEGER NOT NULL,'
        f' "$deleted" INTEGER NOT NULL, "$stamps" TEXT{columns}) WITHOUT ROWID'
    )
    connection.execute(
        f'CREATE TABLE {layout.history_table} ("$key" BLOB NOT NULL, "$ts" INTEGER NOT NULL,'
        f' "$until" INTEGER NOT NULL, "$deleted" INTEGER NOT NULL, "$stamps" TEXT{columns},'
        ' PRIMARY KEY ("$until", "$key")) WITHOUT ROWID'
    )
    # Only tombstones are in the index, so that pruning them needs no walk over the table.
    connection.execute(
        f'CREATE INDEX {quote(f"d_{node_id}")} ON {layout.sql_table} ("$ts") WHERE "$deleted" = 1'
    )


def insert_tablet(
    connection: Connection,
    node_id: str,
    index: int,
    pivot: Sequence[Any],
    schema: TableSchema,
    trimmed: tuple[int, int] = (0, 0),
) -> str:
    """Add an unmounted tablet and return its id; `trimmed` is its trimmed row count and weight."""
    rows, weight = trimmed
    tablet_id = make_id("tablet")
    if rows:
        flushed.add(connection, tablet_id, flushed.Chunk("", 0, rows), dropped=True)
    connection.execute(
        "INSERT INTO tablets (node_id, tablet_index, tablet_id, state, pivot_key, mount_revision,"
        " total_rows, trimmed_rows, total_weight, trimmed_weight)"
        " VALUES (?, ?, ?, 'unmounted', ?, 0, ?, ?, ?, ?)",
        (
            node_id,
            index,
            tablet_id,
            values.dump_yson([encode_pivot(schema, pivot), list(pivot)]),
            rows,
            rows,
            weight,
            weight,
        ),
    )
    return tablet_id


def encode_pivot(schema: TableSchema, pivot: Sequence[Any]) -> bytes:
    """Encode the first key of a tablet, which may be a prefix of a key.

    Raises:
        YtError: it does not fit the key columns.
    """
    if len(pivot) > len(schema.key_columns):
        raise YtError("Pivot key must form a prefix of key", Code.SCHEMA_VIOLATION)
    stored = []
    for column, value in zip(schema.key_columns, pivot, strict=False):
        # A pivot key has the types of the schema: an int64 is no uint64 here.
        encoded, error = encode_column(column, [value], Conversions(integral=False))
        if error is not None:
            raise error
        stored.append(encoded[0])
    return keys.encode_prefix(schema.key_columns, stored)


def parse_pivots(raw: Any) -> list[list[Any]]:
    """Read pivot keys from an attribute or a parameter."""
    if not isinstance(raw, list) or not all(isinstance(pivot, list) for pivot in raw):
        raise YtError('Error parsing "pivot_keys": expected a list of keys, each a list of values')
    if not raw:
        raise YtError("Pivot keys must not be empty")
    return [list(pivot) for pivot in raw]


def parse_trimmed(given: dict[str, Any], count: int) -> list[tuple[int, int]]:
    """Read trimmed row counts and data weights of new tablets of an ordered table.

    Args:
        given: attributes or parameters, with `trimmed_row_counts` and `cumulative_data_weights`.
        count: how many tablets there will be.
    """
    rows, weights = (_numbers(given, name, count) for name in TRIMMED)
    return list(zip(rows, weights, strict=True))


def _numbers(given: dict[str, Any], name: str, count: int) -> list[int]:
    """Read one number for each new tablet; none at all are zeros."""
    raw = given.get(name)
    numbers = arguments.integers(raw, name) if raw else []
    if len(numbers) not in {0, count}:
        raise YtError(
            f'"{name}" has invalid size: expected 0 or {count}, the number of new tablets,'
            f" got {len(numbers)}"
        )
    for number in numbers:
        if number < 0:
            raise YtError(f'Numbers of "{name}" must be nonnegative, got {number}')
    return numbers or [0] * count


def check_pivots(schema: TableSchema, pivots: Sequence[Sequence[Any]], first_index: int) -> None:
    """Check the pivot keys of consecutive tablets that start at an index."""
    if first_index == 0 and list(pivots[0]):
        raise YtError("First pivot key must be empty")
    encoded = [encode_pivot(schema, pivot) for pivot in pivots]
    if any(left >= right for left, right in pairwise(encoded)):
        raise YtError("Pivot keys must be strictly increasing")


def uniform_pivots(schema: TableSchema, count: int) -> list[list[Any]]:
    """Split the range of an integer first key column evenly."""
    if count == 1:
        return [[]]
    first = schema.key_columns[0]
    bits = _INTEGERS.get(first.wire_type)
    if bits is None:
        raise YtError(
            "Pivot keys must be provided: tablets can only be cut evenly when the first key column "
            f'is an integer, "{first.name}" is {first.wire_type}'
        )
    if first.wire_type.startswith("u"):
        return [[], *([YsonUint64((index << bits) // count)] for index in range(1, count))]
    return [[], *([(index << bits) // count - (1 << (bits - 1))] for index in range(1, count))]
