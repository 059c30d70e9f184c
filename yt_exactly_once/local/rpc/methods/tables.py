"""Methods of dynamic tables as a whole: what a client must know to write, mount states, tablets."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.commands.sessions import table_of
from yt_exactly_once.local.cypress.ids import NULL
from yt_exactly_once.local.rpc import options
from yt_exactly_once.local.rpc.calls import Call, method, plain
from yt_exactly_once.local.rpc.rows import rowset_writer, rowsets, schemas
from yt_exactly_once.local.rpc.rows import value_kinds as kinds
from yt_exactly_once.local.tables.layout import TableLayout

_STATES = {"mounted": 1, "unmounted": 3, "frozen": 5}


@method("GetTableMountInfo", "get_table_mount_info")
def get_table_mount_info(call: Call) -> None:
    """Return the schema and the tablets of a table."""
    layout = table_of(call.context)
    described = {
        "table_id": layout.node_id,
        "schema": schemas.of_table(layout.schema),
        "dynamic": True,
        "upstream_replica_id": NULL,
        "physical_path": layout.path,
    }
    options.fill(call.response, described)
    for tablet in layout.tablets:
        pivot_key = _legacy_key(layout, tablet.pivot_values)
        described = {
            "tablet_id": tablet.tablet_id,
            "mount_revision": tablet.mount_revision,
            "state": _STATES.get(tablet.state, _STATES["unmounted"]),
            "cell_id": tablet.tablet_id,
        }
        options.fill(call.response.tablets.add(pivot_key=pivot_key), described)


def _legacy_key(layout: TableLayout, values: tuple[Any, ...]) -> bytes:
    """Return a key as clients keep it: a version, a count, and the values in their compact form."""
    encoded = [
        _compact(number, kinds.of_column(column), value)
        for number, (column, value) in enumerate(zip(layout.key_columns, values, strict=False))
    ]
    return b"".join([b"\x00", _varint(len(encoded)), *encoded])


def _compact(number: int, kind: int, value: Any) -> bytes:
    if value is None:
        return _varint(number) + _varint(kinds.NULL)
    head = _varint(number) + _varint(kind)
    if kind == kinds.INT64:
        return head + _varint((value << 1 ^ value >> 63) & (1 << 64) - 1)
    if kind == kinds.UINT64:
        return head + _varint(int(value))
    if kind == kinds.BOOLEAN:
        return head + bytes([bool(value)])
    body = rowset_writer.encode_one(number, kind, value)[8:]
    if kind == kinds.DOUBLE:
        return head + body
    length = len(value if isinstance(value, bytes) else str(value).encode())
    return head + _varint(length) + body[:length]


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:  # noqa: PLR2004 - seven bits a byte
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


plain("MountTable", "mount_table")
plain("UnmountTable", "unmount_table")
plain("RemountTable", "remount_table")
plain("FreezeTable", "freeze_table")
plain("UnfreezeTable", "unfreeze_table")
plain("AlterTable", "alter_table")
plain("GetTabletInfos", "get_tablet_infos")


@method("ReshardTable", "reshard_table")
def reshard_table(call: Call) -> None:
    """Cut a range of tablets, by count or by the keys that come as a rowset."""
    if call.rowset:
        call.context.parameters["pivot_keys"] = rowsets.keys(call.rowset)
    call.execute()


def _trimming(request: Any) -> dict[str, Any]:
    # Negative counts arrive as huge ones; the command says what is wrong with them.
    count = int.from_bytes(request.trimmed_row_count.to_bytes(8, "little"), "little", signed=True)
    return options.parameters(request) | {"trimmed_row_count": count}


plain("TrimTable", "trim_rows", _trimming)

plain("GetTablePivotKeys", "get_table_pivot_keys", answer=lambda found: {"value": found})
