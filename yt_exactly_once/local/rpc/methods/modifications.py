"""Methods that write rows of dynamic tables inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, product
from typing import Any

from yt_exactly_once.local.commands.sessions import conversions_of, table_of
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.rpc import options
from yt_exactly_once.local.rpc.calls import Call, method
from yt_exactly_once.local.rpc.rows import rowsets, schemas
from yt_exactly_once.local.rpc.rows.rowsets import Rowset
from yt_exactly_once.local.tables.columnar import ColumnarRows, pieces_of
from yt_exactly_once.local.tables.encoding import Conversions
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tablets import modifications
from yt_exactly_once.local.tablets.modifications import Batch

_WRITE, _DELETE, _WRITE_AND_LOCK = 0, 1, 3
_LOCK_TYPES = ("none", "shared_weak", "shared_strong", "exclusive", "shared_write")


def _command(request: Any) -> str:
    """Return the command that a client ran; one request has modifications of one."""
    first = request.row_modification_types[0] if request.row_modification_types else _WRITE
    if first == _DELETE:
        return "delete_rows"
    taken = any(request.row_legacy_read_locks) or any(request.row_legacy_locks) or request.row_locks
    return "lock_rows" if first == _WRITE_AND_LOCK and taken else "insert_rows"


def _target(request: Any) -> dict[str, Any]:
    return {
        "transaction_id": options.transaction_of(request),
        "path": options.load_path(request.path),
    }


@method(
    "ModifyRows",
    _command,
    _target,
    several=("delete_rows", "insert_rows", "lock_rows"),
    partial="rows that are written under locks of several types at once are refused",
)
def modify_rows(call: Call) -> None:
    """Buffer writes, deletes and locks of rows, in the order of the client's numbers."""
    transaction_id = call.context.parameters["transaction_id"]
    transaction = call.context.proxy.transactions.get(transaction_id)
    layout = table_of(call.context)
    request = call.request
    rowset = rowsets.decode(call.rowset, schemas.names(request.rowset_descriptor))
    kinds = list(request.row_modification_types)
    if len(kinds) != len(rowset.rows):
        raise YtError(
            f"There are {len(kinds)} modification types for {len(rowset.rows)} rows; their numbers"
            " must agree"
        )
    locks = _locks(request, layout, len(kinds))
    batches: list[Batch] = []
    runs = list(_runs(kinds, locks))
    passed = 0
    for rows in pieces_of(rowset.rows) if len(runs) > 1 else (rowset.rows,):
        count = len(kinds) if len(runs) <= 1 else len(rows)
        several = slice(passed, passed + count)
        for start, end in _runs(kinds[several], locks[several]):
            part = Rowset(rows if end - start == count else rows[start:end], rowset.aggregated)
            taken = locks[passed + start] if locks else {}
            kind = kinds[passed + start]
            batches += _batches(layout, kind, part, taken, conversions_of(call.context))
        passed += count
    if request.HasField("sequence_number"):
        source, number = request.sequence_number_source_id, request.sequence_number
        call.sequences.put(transaction, source, number, batches)
    else:
        transaction.buffer(batches)


def _locks(request: Any, layout: TableLayout, count: int) -> list[dict[str, str]]:
    """Return the locks of each row by name of lock group; nothing when no row takes any.

    Clients send them in three forms, by their age.
    """
    if request.row_locks:
        width, masks = 4, [mask.bitmap for mask in request.row_locks]
    elif any(request.row_legacy_locks):
        width, masks = 2, [[word] for word in request.row_legacy_locks]
    elif any(request.row_legacy_read_locks):
        width, masks = 1, [[word] for word in request.row_legacy_read_locks]
    else:
        return []
    given = [_unpacked(words, width, layout) for words in masks]
    if len(given) != count:
        raise YtError(f"There are {len(given)} lock masks for {count} rows")
    return given if any(given) else []


def _unpacked(words: Sequence[int], width: int, layout: TableLayout) -> dict[str, str]:
    found = {}
    for index, (word, shift) in enumerate(product(words, range(0, 64, width))):
        kind = word >> shift & (1 << width) - 1
        if not kind:
            continue
        if kind >= len(_LOCK_TYPES) or index >= len(layout.locks):
            raise YtError(f"A lock mask names lock {index} of type {kind}")
        found[layout.locks[index]] = _LOCK_TYPES[kind]
    return found


def _runs(kinds: list[int], locks: list[dict[str, str]]) -> Iterator[tuple[int, int]]:
    """Yield ranges of neighbours that are modified in the same way."""
    if not locks and len(set(kinds)) <= 1:
        if kinds:
            yield 0, len(kinds)
        return
    marks = list(zip(kinds, locks, strict=True)) if locks else kinds
    start = 0
    for _, members in groupby(marks):
        end = start + len(list(members))
        yield start, end
        start = end


def _batches(
    layout: TableLayout, kind: int, part: Rowset, locks: dict[str, str], conversions: Conversions
) -> list[Batch]:
    if kind == _DELETE:
        return [modifications.delete_batch(layout, part.rows, conversions=conversions)]
    if kind == _WRITE:
        return _writes(layout, part, "exclusive", conversions)
    if kind != _WRITE_AND_LOCK:
        raise YtError(f"Unknown row modification type {kind}")
    taken = sorted(set(locks.values()) - {"none"})
    keys = {column.name for column in layout.key_columns}
    if all(row.keys() <= keys for row in part.rows):
        return [
            modifications.lock_batch(
                layout,
                part.rows,
                [name for name, lock in locks.items() if lock == each],
                each,
                conversions=conversions,
            )
            for each in taken
        ]
    if len(taken) > 1:
        raise YtError(
            "Rows that are written with locks of several types are not supported by the embedded"
            " cluster; write them one lock type at a time"
        )
    return _writes(layout, part, taken[0] if taken else "exclusive", conversions)


def _writes(
    layout: TableLayout, part: Rowset, lock_type: str, conversions: Conversions
) -> list[Batch]:
    """Encode written rows: a column that a row does not mention stays as it is."""
    update = layout.sorted and not _mentions_all(layout, part)
    return modifications.write_batches(
        layout,
        part.rows,
        update=update,
        aggregate=part.aggregated,
        lock_type=lock_type,
        conversions=conversions,
    )


def _mentions_all(layout: TableLayout, part: Rowset) -> bool:
    """Tell whether rows mention every column, so that they may be encoded as whole ones."""
    # Pieces of rows by column have the same columns.
    rows = next(pieces_of(part.rows))
    if not isinstance(rows, ColumnarRows):
        return False
    return all(column.name in rows.columns for column in layout.writable_columns)
