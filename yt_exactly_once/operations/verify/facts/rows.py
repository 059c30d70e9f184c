"""Facts about rows: how values arrive in each format, nulls, updates, deletes, keys."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from yt_exactly_once.codec.rows import WireFormat, decode, encode, encode_empty
from yt_exactly_once.codec.schema import TableSchema, WritePlan, arrow_schema_of, check_frame
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.config import PLAIN_WRITE, DeliveryMode, WriteOptions
from yt_exactly_once.errors import (
    ClusterUnavailableError,
    RequestRefusedError,
    SchemaMismatchError,
    TransientError,
)
from yt_exactly_once.operations.verify.stage import EVERY_MODE, KEY, Facts, Stage, expect
from yt_exactly_once.ytsaurus.alteration import alter_columns
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.tables import describe_table, ensure_table

_ARROW = "yt/yt/library/formats/arrow_parser.cpp"
_STORE = "yt/yt/server/node/tablet_node/sorted_dynamic_store.cpp"

fact = Facts("Rows", features=EVERY_MODE, source=_ARROW)


def _instant(*moment: int) -> dt.datetime:
    return dt.datetime(*moment, tzinfo=dt.UTC)  # type: ignore[arg-type,misc]


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type_name": "decimal", "precision": precision, "scale": scale}


_VALUES: dict[str, tuple[Any, Any]] = {
    "uint8": ("uint8", 255),
    "uint64": ("uint64", Decimal(2**64 - 1)),
    "int8": ("int8", -128),
    "int64": ("int64", -(2**63)),
    "float": ("float", 1.5),
    "double": ("double", float("-inf")),
    "bool": ("bool", True),
    "string": ("string", b"\xff\x00"),
    "utf8": ("utf8", "é"),
    "json": ("json", '{"a": 1}'),
    "date": ("date", dt.date(2020, 1, 1)),
    "datetime": ("datetime", _instant(2020, 1, 1, 1, 1, 1)),
    "timestamp": ("timestamp", _instant(2020, 1, 1, 1, 1, 1, 5)),
    "interval": ("interval", dt.timedelta(-1, 5, 6)),
    "decimal": (_decimal(9, 2), Decimal("-1234567.89")),
    "decimal38": (_decimal(38, 0), Decimal(10**37 + 1)),
    "any": ("yson", b"[\x02\x02;{\x01\x02a=\x06\x05;};]"),
    "list": ({"type_name": "list", "item": "int64"}, [1, 2]),
    "struct": ({"type_name": "struct", "members": [{"name": "a", "type": "int64"}]}, {"a": 1}),
    "dict": ({"type_name": "dict", "key": "utf8", "value": "int64"}, [("k", 1)]),
}
"""A column's type, and a value as a source yields it."""


def _round_trip(stage: Stage, wire: WireFormat) -> str:
    """Write rows of every type that the sink sends in this format, and read them as the source does."""
    path = stage.path(f"types-{wire.value}")
    schema = [
        {"name": name, "type_v3": {"type_name": "optional", "item": kind}}
        for name, (kind, _) in _VALUES.items()
    ]
    ensure_table(stage.connection, path, schema, {})
    sent = [name for name in _VALUES if _takes(stage, path, name, wire)]
    plan, frame = _plan(stage, path, sent)
    batch = pa.RecordBatch.from_pylist([{name: _VALUES[name][1] for name in sent}, {}], frame)
    payload = encode(batch, plan, wire, tablet_index=0)
    _write(stage, path, Payload(batch.num_rows, payload), wire=wire.value)
    stage.wait(
        lambda: stage.end(f"types-{wire.value}") == batch.num_rows, lambda: "the rows do not appear"
    )
    found = decode(RemoteQueue(stage.connection, path).pull(0, 0, 10), frame).to_pylist()
    other = [name for name in sent if [row[name] for row in found] != [_VALUES[name][1], None]]
    expect(not other, f"other values come back in columns of the types {', '.join(other)}")
    nulls = " and ".join(f"is_null([{name}])" for name in sent)
    selected = list(stage.client.select_rows(f"[$row_index] from [{path}] where {nulls}"))
    expect(len(selected) == 1, "a null that was written is none to a query")
    yson = [name for name in _VALUES if name not in sent]
    return f"{len(sent)} types" + (f"; the sink sends YSON for {', '.join(yson)}" if yson else "")


def _plan(stage: Stage, path: str, names: Sequence[str]) -> tuple[WritePlan, pa.Schema]:
    """Return how the sink writes these columns, and their Arrow schema."""
    table = TableSchema.from_yt(describe_table(stage.connection, path).schema)
    whole = arrow_schema_of(table, binary_strings=True)
    frame = pa.schema([whole.field(name) for name in names])
    return check_frame(frame, table, target=path, sorted=False), frame


def _takes(stage: Stage, path: str, name: str, wire: WireFormat) -> bool:
    """Ask whether a column is taken in this format, in the way that the sink asks."""
    plan, _ = _plan(stage, path, [name])
    if wire is WireFormat.ARROW and plan.arrow_obstacles:
        return False
    with stage.transaction() as transaction:
        try:
            transaction.write(path, [Payload(0, encode_empty(plan, wire))], wire.value)
        except (RequestRefusedError, SchemaMismatchError):
            if wire is WireFormat.YSON:
                raise
            return False
    return True


def _write(
    stage: Stage,
    path: str,
    *bodies: Payload,
    wire: str = "yson",
    options: WriteOptions = PLAIN_WRITE,
) -> None:
    with stage.transaction() as transaction:
        transaction.write(path, bodies, wire, options)
        transaction.commit()


def _shown(row: dict[str, Any] | None) -> str:
    return "no row" if row is None else "other values"


@fact("rows.arrow")
def _arrow(stage: Stage) -> str:
    """Rows that are written as Arrow come back exactly, in every type that the proxy takes as Arrow. The sink
    asks with a stream without rows, and sends YSON for the others.

    Start the sink with wire_format='yson'. If values differ without an error, rows that were written as Arrow
    before are wrong: compare them with their source.
    """
    return _round_trip(stage, WireFormat.ARROW)


@fact("rows.yson", source="yt/yt/library/formats/yson_map_to_unversioned_value.cpp")
def _yson(stage: Stage) -> str:
    """Rows that are written as YSON come back exactly, in every type.

    Columns of the types that differ cannot be used. Cast them to string in the query.
    """
    return _round_trip(stage, WireFormat.YSON)


@fact("rows.null-of-any", source="TInsertRowsFormatConfig in yt/yt/client/driver")
def _null_of_any(stage: Stage) -> None:
    """A null of an any column is a null to a query, with the format attribute that the sink sends.

    is_null does not find such nulls. In queries, compare with a YSON entity too.
    """
    _write(stage, stage.path("rows"), Payload(1, b'{"k"="null-of-any";"v"="x";"x"=#;};'))
    query = f'k from [{stage.path("rows")}] where k = "null-of-any" and is_null(x)'
    expect(
        list(stage.client.select_rows(query)),
        "a null of an any column is stored as a YSON entity, which is_null does not find",
    )


@fact("rows.update", source="user guide: dynamic tables, writing")
def _replace_and_update(stage: Stage) -> None:
    """An update keeps the columns that it does not mention. An insert makes them null.

    write='update' or write='upsert' would leave other values than the sink promises.
    """
    stage.insert("rows", {"k": "update", "v": "x", "n": 1})
    _write(
        stage,
        stage.path("rows"),
        Payload(1, b'{"k"="update";"n"=2;};'),
        options=WriteOptions(update=True),
    )
    (row,) = stage.rows("rows", "update")
    expect(row and (row["v"], row["n"]) == ("x", 2), f"an update left {_shown(row)}")
    stage.insert("rows", {"k": "update", "n": 3})
    (row,) = stage.rows("rows", "update")
    expect(row and (row["v"], row["n"]) == (None, 3), f"an insert left {_shown(row)}")


@fact("rows.order-of-changes", features=(DeliveryMode.TRANSACTIONAL,), source=_STORE)
def _last_change_counts(stage: Stage) -> None:
    """Of a delete and a later write of one key in one transaction, the last counts.

    write='replace' and delete_marker would lose rows. Do not use them.
    """
    stage.insert("rows", {"k": "order-1", "v": "old"}, {"k": "order-2", "v": "old"})
    keys = Payload(2, b'{"k"="order-1"};{"k"="order-2"};', deletes=True)
    _write(stage, stage.path("rows"), keys, Payload(1, b'{"k"="order-1";"v"="new"};'))
    kept, deleted = stage.rows("rows", "order-1", "order-2")
    expect(
        kept is not None and kept["v"] == "new" and deleted is None,
        "a delete and a later write of one key in one transaction do not act in their order",
    )


@fact(
    "rows.aggregate",
    features=(DeliveryMode.TRANSACTIONAL,),
    source="user guide: dynamic tables, aggregation",
)
def _aggregate(stage: Stage) -> None:
    """A sum column adds up over transactions.

    Do not use aggregate=True.
    """
    body = Payload(1, b'{"k"="sum";"total"=2};')
    for _ in range(2):
        _write(stage, stage.path("rows"), body, options=WriteOptions(update=True, aggregate=True))
    (row,) = stage.rows("rows", "sum")
    expect(row and row["total"] == 4, f"2 and 2 make {_shown(row)}")  # noqa: PLR2004 - their sum


@fact(
    "rows.new-column",
    features=(DeliveryMode.TRANSACTIONAL,),
    source="TTableNodeProxy::Alter in yt/yt/server/master/table_server/table_node_proxy_detail.cpp",
)
def _new_column(stage: Stage) -> str:
    """A mounted table is not altered. An unmounted one gets an optional column, and a wider type. Stored rows
    have null there and keep their values. A row that was sent before is refused.

    Do not use on_new_columns='add' or add-column. Stop the queries of the table before you alter it.
    """
    path = stage.path("altered")
    ensure_table(stage.connection, path, [KEY, {"name": "n", "type": "int32"}], {})
    wider: list[dict[str, Any]] = [
        KEY,
        {"name": "n", "type": "int64"},
        {"name": "c", "type": "string"},
    ]
    _write(stage, path, Payload(1, b'{"k"="old";"n"=1};'))
    with stage.refuses((ClusterUnavailableError, 1706), "a mounted table was altered"):
        stage.client.alter_table(path, schema=wider)
    with stage.transaction() as transaction:
        transaction.insert(path, [{"k": "sent", "n": 2}])
        alter_columns(stage.connection, path, lambda _: wider)
        with stage.refuses(
            (TransientError, None), "a row was committed that was sent before"
        ) as codes:
            transaction.commit()
    _write(stage, path, Payload(1, b'{"k"="new";"n"=4294967296;"c"="x"};'))
    old, sent, new = stage.rows("altered", "old", "sent", "new")
    expect(sent is None, "the refused row is there")
    expect(old and (old["n"], old["c"]) == (1, None), f"the row of before has {_shown(old)}")
    expect(new and (new["n"], new["c"]) == (2**32, "x"), f"the new row has {_shown(new)}")
    return f"codes {codes}"


@fact("rows.lookup", source="yt/yt/client/driver/table_commands.cpp")
def _order_of_keys(stage: Stage) -> None:
    """A lookup answers in the order of the keys, with null for a missing row.

    The sink would take one ledger entry or offset for another. Do not use the package on this cluster.
    """
    stage.insert("rows", {"k": "key-1", "v": "1"}, {"k": "key-2", "v": "2"})
    found = stage.rows("rows", "key-2", "key-none", "key-1")
    expect(
        [row and row["v"] for row in found] == ["2", None, "1"],
        "a lookup does not answer in the order of the keys, with null for a missing row",
    )
