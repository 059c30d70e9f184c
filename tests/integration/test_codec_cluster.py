"""Encoded rows through a cluster and back: both wire formats, every type."""

import datetime as dt
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from yt_exactly_once.codec.row_hash import row_hashes
from yt_exactly_once.codec.rows import WireFormat, decode, encode, encode_empty
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, check_frame
from yt_exactly_once.codec.types import arrow_obstacle, parse_type
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.ytsaurus.browsing import selected
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.tables import describe_table


def optional(item):
    return {"type_name": "optional", "item": item}


def members(**types):
    return [{"name": name, "type": kind} for name, kind in types.items()]


def instant(*moment):
    return dt.datetime(*moment, tzinfo=dt.UTC)


# A column's type, a value of it as a source yields it.
CASES = {
    "uint8": ("uint8", 255),
    "uint64": ("uint64", Decimal(2**64 - 1)),
    "int8": ("int8", -128),
    "int64": ("int64", -(2**63)),
    "float": ("float", 1.5),
    "double": ("double", float("-inf")),
    "flag": ("bool", True),
    "bytes": ("string", b"\xff\x00"),
    "text": ("utf8", "é"),
    "json": ("json", '{"a": 1}'),
    "uuid": ("uuid", bytes(range(16))),
    "date": ("date", dt.date(2020, 1, 1)),
    "date32": ("date32", dt.date(1960, 1, 1)),
    "datetime": ("datetime", instant(2020, 1, 1, 1, 1, 1)),
    "datetime64": ("datetime64", instant(1920, 1, 1, 1, 1, 1)),
    "timestamp": ("timestamp", instant(2020, 1, 1, 1, 1, 1, 5)),
    "timestamp64": ("timestamp64", instant(1920, 1, 1, 1, 1, 1, 5)),
    "interval": ("interval", dt.timedelta(-1, 5, 6)),
    "small": ({"type_name": "decimal", "precision": 9, "scale": 2}, Decimal("-1234567.89")),
    "large": ({"type_name": "decimal", "precision": 38, "scale": 0}, Decimal(10**38 - 1)),
    "any": ("yson", b"[\x02\x02;{\x01\x02a=\x06\x05;};]"),
    "list": ({"type_name": "list", "item": optional("int64")}, [1, None]),
    "struct": ({"type_name": "struct", "members": members(a="int8", b=optional("utf8"))},
               {"a": 1, "b": None}),
    "tuple": ({"type_name": "tuple", "elements": [{"type": "int8"}, {"type": "utf8"}]},
              {"_1": 1, "_2": "x"}),
    "variant": ({"type_name": "variant", "members": members(a="int8", b="utf8")},
                {"_va": None, "_vb": "z"}),
    "dict": ({"type_name": "dict", "key": "utf8", "value": "date"}, [("k", dt.date(2020, 1, 1))]),
    "nested": (optional("int64"), {"value": None}),
}  # fmt: skip


@pytest.mark.parametrize("wire", list(WireFormat))
def test_rows_of_every_type_come_back_as_they_were(cluster, client, tmp, wire):
    """What a sink writes, a source reads: values, nulls and their order."""
    schema = [{"name": "id", "type_v3": "int64"}]
    cases = {
        name: case
        for name, case in CASES.items()
        if wire is WireFormat.YSON or arrow_obstacle(parse_type(case[0])) is None
    }
    schema += [{"name": name, "type_v3": optional(kind)} for name, (kind, _) in cases.items()]
    path = f"{tmp}/queue"
    client.create("table", path, attributes={"dynamic": True, "schema": schema})
    client.mount_table(path, sync=True)
    connection = Connection(ClusterConfig.resolve(proxy=cluster.proxy_urls[0]))

    table = TableSchema.from_yt(describe_table(connection, path).schema)
    frame = arrow_schema_of(table, binary_strings=True)
    full = {name: value for name, (_, value) in cases.items()}
    batch = pa.RecordBatch.from_pylist([{"id": 1} | full, {"id": 2}, {"id": 3} | full], frame)
    plan = check_frame(frame, table, target=path, sorted=False)
    payloads = [encode_empty(plan, wire), encode(batch, plan, wire, tablet_index=0)]
    transaction = connection.begin(timedelta(seconds=30))
    transaction.write(path, [Payload(0, payload) for payload in payloads], wire.value)
    transaction.commit()
    assert len(list(client.select_rows(f"id from [{path}]"))) == 3  # waits until they appear

    pulled = decode(RemoteQueue(connection, path).pull(0, 0, 10), frame)
    assert pulled.to_pylist() == batch.to_pylist()
    # Digests of ledgers are made of rows before they are written, and audits read them with queries.
    hashes = row_hashes(batch, plan.columns).tolist()
    assert row_hashes(pulled, plan.columns).tolist() == hashes
    names = ", ".join(f"[{name}]" for name in frame.names)
    answer = selected(connection, f"{names} from [{path}] limit 10")
    assert sorted(row_hashes(decode(answer, frame), plan.columns).tolist()) == sorted(hashes)
    # A null must be one to a query too; of `any` columns an insert makes a value, unless told not to.
    for name in ("any", "list"):
        if name in cases:
            nulls = client.select_rows(f"id from [{path}] where is_null([{name}])")
            assert [row["id"] for row in nulls] == [2]
