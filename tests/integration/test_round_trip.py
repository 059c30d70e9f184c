"""Rows of every type from a queue through Spark into a table: the very rows that were there."""

import datetime as dt
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
import yt.yson
from pyspark.sql import DataFrame
from yt.wrapper import YsonFormat

from tests.arrow_streams import stream_of
from tests.integration.streams import QUICK, finish
from tests.kinds import decimal, dict_of, listed, optional, struct, tuple_of, variant
from yt_exactly_once import TransactionalSink, create_table, register_source
from yt_exactly_once.codec.rows import WireFormat, encode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, check_frame
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.ytsaurus.client import Connection

pytestmark = pytest.mark.further


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


def as_arrow(frame: DataFrame) -> pa.Table:
    """Return the rows of a frame as Spark hands them to Python.

    `toArrow` fails on null structs whose members are required: it casts once more.
    """

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"stream": [stream_of(batch)]})

    streams = [row.stream for row in frame.mapInArrow(packed, "stream binary").collect()]
    return pa.concat_tables(pa.ipc.open_stream(bytes(stream)).read_all() for stream in streams)


def test_frame_of_every_type_passes_through_spark(spark, cluster, client, tmp, tmp_path):
    """Full, empty and full again. Rows are compared as bytes: to Arrow, NaN differs from NaN."""
    register_source(spark)
    proxy, queue, target = cluster.proxy_urls[0], f"{tmp}/queue", f"{tmp}/target"
    columns = [{"name": "id", "type_v3": "int64"}]
    columns += [{"name": name, "type_v3": optional(kind)} for name, (kind, _) in CASES.items()]
    for path in (queue, target):
        create_table(path, columns, proxy=proxy)
    table = TableSchema.from_yt(columns)
    frame = arrow_schema_of(table, binary_strings=True)
    plan = check_frame(frame, table, target=queue, sorted=False)
    full = {name: value for name, (_, value) in CASES.items()}
    given = [{"id": 1} | full, {"id": 2}, {"id": 3} | full]
    rows = encode(pa.RecordBatch.from_pylist(given, frame), plan, WireFormat.YSON, tablet_index=0)
    transaction = Connection(ClusterConfig(proxy=proxy)).begin(timedelta(seconds=30))
    transaction.write(queue, [Payload(len(given), rows)], WireFormat.YSON.value)
    transaction.commit()
    seen = []
    sink = TransactionalSink(target, proxy=proxy, retry=QUICK)

    def write(batch: DataFrame, batch_id: int) -> None:
        seen.append(as_arrow(batch))
        sink(batch, batch_id)

    finish(
        spark.readStream.format("yt")
        .options(proxy=proxy, binary_strings=True)
        .load(queue)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    (found,) = pa.concat_tables(seen).combine_chunks().to_batches()
    assert encode(found, plan, WireFormat.YSON, tablet_index=0) == rows

    def stored(path: str) -> list[bytes]:
        names = ", ".join(f"[{column.name}]" for column in table.columns)
        binary = YsonFormat(format="binary")
        answer = client.select_rows(f"{names} from [{path}]", raw=True, format=binary).read()
        parsed = yt.yson.loads(answer, yson_type="list_fragment", encoding=None)
        return [yt.yson.dumps(row, yson_format="binary") for row in parsed]

    assert len(stored(queue)) == len(given)
    assert stored(target) == stored(queue)
