"""Methods of dynamic tables as a whole: what a client must know to write, mount states, tablets."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.commands.sessions import table_of
from yt_exactly_once.local.formats.structured import dump_yson, load_yson
from yt_exactly_once.local.rpc import identifiers, options
from yt_exactly_once.local.rpc.calls import Call, method, only_execute
from yt_exactly_once.local.rpc.rows import rowset_writer, rowsets, schemas
from yt_exactly_once.local.rpc.rows import value_kinds as kinds
from yt_exactly_once.local.tables.layout import TableLayout

_STATES = {"mounted": 1, "unmounted": 3, "frozen": 5}
_MAX_KEY = 256
_NULL_ID = "0-0-0-0"


@method("GetTableMountInfo", "get_table_mount_info", options.at_path)
def get_table_mount_info(call: Call) -> None:
    """Return the schema and the tablets of a table."""
    layout = table_of(call.context)
    response = call.response
    identifiers.fill(response.table_id, layout.node_id)
    identifiers.fill(response.upstream_replica_id, _NULL_ID)
    schemas.fill_schema(response.schema, layout.schema)
    response.dynamic = True
    response.physical_path = layout.path.encode()
    for tablet in layout.tablets:
        target = response.tablets.add()
        identifiers.fill(target.tablet_id, tablet.tablet_id)
        target.mount_revision = tablet.mount_revision
        target.state = _STATES.get(tablet.state, _STATES["unmounted"])
        target.pivot_key = _legacy_key(layout, tablet.pivot_values)
        identifiers.fill(target.cell_id, tablet.tablet_id)


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


def _mount(request: Any) -> dict[str, Any]:
    return _range(request, "freeze") | {"cell_id": identifiers.given(request, "cell_id")}


def _range(request: Any, *fields: str) -> dict[str, Any]:
    parameters = options.at_path(request, *fields)
    limits = request.tablet_range_options
    return parameters | options.scalars(limits, ("first_tablet_index", "last_tablet_index"))


method("MountTable", "mount_table", _mount)(only_execute)
method("UnmountTable", "unmount_table", lambda request: _range(request, "force"))(only_execute)
method("RemountTable", "remount_table", _range)(only_execute)
method("FreezeTable", "freeze_table", _range)(only_execute)
method("UnfreezeTable", "unfreeze_table", _range)(only_execute)


def _resharding(request: Any) -> dict[str, Any]:
    return _range(request, "tablet_count", "uniform", "enable_slicing")


@method("ReshardTable", "reshard_table", _resharding)
def reshard_table(call: Call) -> None:
    """Cut a range of tablets, by count or by the keys that come as a rowset."""
    if call.rowset:
        # Keys come without names: an id is the position in the key.
        decoded = rowsets.decode(call.rowset, [str(number) for number in range(_MAX_KEY)])
        call.context.parameters["pivot_keys"] = [list(row.values()) for row in decoded.rows]
    call.execute()


def _alteration(request: Any) -> dict[str, Any]:
    parameters = options.at_path(request, "dynamic")
    if request.HasField("schema"):
        parameters["schema"] = load_yson(request.schema, "schema")
    return parameters


method("AlterTable", "alter_table", _alteration)(only_execute)


def _trimming(request: Any) -> dict[str, Any]:
    # Negative counts arrive as huge ones; the command says what is wrong with them.
    count = int.from_bytes(request.trimmed_row_count.to_bytes(8, "little"), "little", signed=True)
    return options.at_path(request, "tablet_index") | {"trimmed_row_count": count}


method("TrimTable", "trim_rows", _trimming)(only_execute)


def _infos(request: Any) -> dict[str, Any]:
    wanted = options.at_path(request, "request_errors")
    return wanted | {"tablet_indexes": list(request.tablet_indexes)}


@method("GetTabletInfos", "get_tablet_infos", _infos)
def get_tablet_infos(call: Call) -> None:
    """Report row counts of tablets."""
    for info in call.execute()["tablets"]:
        target = call.response.tablets.add()
        for name in (
            "total_row_count",
            "trimmed_row_count",
            "delayed_lockless_row_count",
            "barrier_timestamp",
            "last_write_timestamp",
        ):
            setattr(target, name, int(info[name]))


@method("GetTabletErrors", "get_tablet_errors", options.fields("limit"))
def get_tablet_errors(call: Call) -> None:
    """Report errors of background work; there is none here."""
    call.execute()
    call.response.incomplete = False


@method("GetTablePivotKeys", "get_table_pivot_keys", options.fields("represent_key_as_list"))
def get_table_pivot_keys(call: Call) -> None:
    """Return the first key of every tablet."""
    call.response.value = dump_yson(call.execute())
