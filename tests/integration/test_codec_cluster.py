"""Encoded rows through a cluster and back: both wire formats, every type."""

import datetime as dt
import math
import sys
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.kinds import decimal, dict_of, listed, optional, struct, tuple_of, variant
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
    "small": (decimal(9, 2), Decimal("-1234567.89")),
    "large": (decimal(38, 0), Decimal(10**38 - 1)),
    "any": ("yson", b"[\x02\x02;{\x01\x02a=\x06\x05;};]"),
    "list": (listed(optional("int64")), [1, None]),
    "struct": (struct(a="int8", b=optional("utf8")), {"a": 1, "b": None}),
    "tuple": (tuple_of("int8", "utf8"), {"_1": 1, "_2": "x"}),
    "variant": (variant(a="int8", b="utf8"), {"_va": None, "_vb": "z"}),
    "dict": (dict_of("utf8", "date"), [("k", dt.date(2020, 1, 1))]),
    "nested": (optional("int64"), {"value": None}),
}  # fmt: skip


@pytest.mark.parametrize("wire", list(WireFormat))
def test_rows_of_every_type_come_back_as_they_were(cluster, client, tmp, wire):
    """What a sink writes, a source reads: values, nulls and their order."""
    cases = {
        name: case
        for name, case in CASES.items()
        if wire is WireFormat.YSON or arrow_obstacle(parse_type(case[0])) is None
    }
    full = {name: value for name, (_, value) in cases.items()}
    path, connection = (
        f"{tmp}/queue",
        Connection(ClusterConfig.resolve(proxy=cluster.proxy_urls[0])),
    )
    columns = {name: kind for name, (kind, _) in cases.items()}
    batch, pulled, plan = _through(connection, client, path, wire, columns, [full, {}, full])
    frame = batch.schema
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


@pytest.mark.parametrize("wire", list(WireFormat))
def test_edges_of_numbers_come_back_bit_for_bit(cluster, client, tmp, wire):
    """No number, the infinities, a zero with a sign, subnormal ones, and decimals of the most digits."""
    doubles = [
        math.nan,
        math.inf,
        -math.inf,
        -0.0,
        5e-324,
        -2.2250738585072011e-308,
        sys.float_info.max,
    ]
    rows = [{"double": each, "float": each} for each in doubles]
    rows += [{"float": each} for each in (1e-45, -1.1754942e-38, 3.4028234663852886e38)]
    kinds = {"double": "double", "float": "float"}
    for precision, scale in ((35, 0), (35, 35), (36, 18), (38, 0), (38, 38)):
        name = f"decimal_{precision}_{scale}"
        kind = decimal(precision, scale)
        if wire is WireFormat.ARROW and arrow_obstacle(parse_type(kind)) is not None:
            continue
        kinds[name] = kind
        for digits in ("9" * precision, "1", "0"):
            for sign in (0, 1):
                rows.append({name: Decimal((sign, tuple(map(int, digits)), -scale))})
    connection = Connection(ClusterConfig.resolve(proxy=cluster.proxy_urls[0]))
    batch, pulled, _ = _through(connection, client, f"{tmp}/queue", wire, kinds, rows)
    for sent, found in zip(batch.columns, pulled.columns, strict=True):
        assert [repr(each) for each in found.to_pylist()] == [
            repr(each) for each in sent.to_pylist()
        ]


def _through(connection, client, path, wire, columns, rows):
    """Write rows into a queue and read them back; return both, and how they were written."""
    schema = [{"name": "id", "type_v3": "int64"}]
    schema += [{"name": name, "type_v3": optional(kind)} for name, kind in columns.items()]
    client.create("table", path, attributes={"dynamic": True, "schema": schema})
    client.mount_table(path, sync=True)
    table = TableSchema.from_yt(describe_table(connection, path).schema)
    frame = arrow_schema_of(table, binary_strings=True)
    numbered = [{"id": number} | row for number, row in enumerate(rows, 1)]
    batch = pa.RecordBatch.from_pylist(numbered, frame)
    plan = check_frame(frame, table, target=path, sorted=False)
    payloads = [encode_empty(plan, wire), encode(batch, plan, wire, tablet_index=0)]
    transaction = connection.begin(timedelta(seconds=30))
    transaction.write(path, [Payload(0, payload) for payload in payloads], wire.value)
    transaction.commit()
    assert len(list(client.select_rows(f"id from [{path}]"))) == len(
        rows
    )  # waits until they appear
    return batch, decode(RemoteQueue(connection, path).pull(0, 0, 100), frame), plan
