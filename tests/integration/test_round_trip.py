"""Rows from a queue through Spark into a table: of every type, and the very rows that were there.

`YT_EXACTLY_ONCE_SPARK_EXAMPLES=300` asks for as many random tables as the release is held to.
"""

import datetime as dt
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yt.yson
from pyspark.sql import DataFrame
from yt.wrapper import YsonFormat

from tests.integration.streams import QUICK, finish
from tests.kinds import decimal, dict_of, listed, optional, struct, tuple_of, variant
from tests.property.random_tables import batch_of, drawn, side_by_side
from yt_exactly_once import TransactionalSink, create_table, register_source
from yt_exactly_once.codec.rows import WireFormat, encode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, check_frame
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tables import describe_table

pytestmark = pytest.mark.further

EXAMPLES = int(os.environ.get("YT_EXACTLY_ONCE_SPARK_EXAMPLES", "0"))
PER_QUERY = 15
"""Random tables that share a query: their columns stand side by side."""

ROWS_PER_BATCH = 50_000
LEASE = timedelta(seconds=30)

on_request = pytest.mark.skipif(
    not EXAMPLES, reason="set YT_EXACTLY_ONCE_SPARK_EXAMPLES to the number of tables"
)


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
            stream = pa.BufferOutputStream()
            with pa.ipc.new_stream(stream, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.record_batch({"stream": [stream.getvalue().to_pybytes()]})

    streams = [row.stream for row in frame.mapInArrow(packed, "stream binary").collect()]
    return pa.concat_tables(pa.ipc.open_stream(bytes(stream)).read_all() for stream in streams)


class RoundTrip:
    """A queue and a table of the same columns, and what a query between them has seen."""

    def __init__(self, spark: Any, cluster: Any, client: Any, folder: str) -> None:
        self.spark = spark
        self.client = client
        self.proxy = cluster.proxy_urls[0]
        self.connection = Connection(ClusterConfig(proxy=self.proxy))
        self.queue, self.target = f"{folder}/queue", f"{folder}/target"

    def create(self, columns: Any) -> pa.Schema:
        """Create both; return what the source will yield."""
        for path in (self.queue, self.target):
            create_table(path, columns, proxy=self.proxy)
        info = describe_table(self.connection, self.queue)
        self.schema = TableSchema.from_yt(info.schema)
        frame = arrow_schema_of(self.schema, binary_strings=True)
        self.plan = check_frame(frame, self.schema, target=self.queue, sorted=False)
        return frame

    def encoded(self, rows: pa.RecordBatch) -> bytes:
        """Return rows as comparable bytes: to Arrow, NaN differs from NaN."""
        return encode(rows, self.plan, WireFormat.YSON, tablet_index=0)

    def append(self, rows: pa.RecordBatch) -> None:
        transaction = self.connection.begin(LEASE)
        transaction.write(
            self.queue, [Payload(rows.num_rows, self.encoded(rows))], WireFormat.YSON.value
        )
        transaction.commit()

    def run(
        self, checkpoint: Path, take: Callable[[DataFrame], pa.Table] = as_arrow
    ) -> list[pa.Table]:
        """Pass everything on; return the batches as Spark had them."""
        seen: list[pa.Table] = []
        sink = TransactionalSink(self.target, proxy=self.proxy, retry=QUICK)

        def write(frame: DataFrame, batch_id: int) -> None:
            seen.append(take(frame))
            sink(frame, batch_id)

        finish(
            self.spark.readStream.format("yt")
            .options(proxy=self.proxy, binary_strings=True, max_rows_per_partition=ROWS_PER_BATCH)
            .load(self.queue)
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        return seen

    def stored(self, path: str) -> list[bytes]:
        """Return the rows a table holds, each as bytes."""
        names = ", ".join(f"[{column.name}]" for column in self.schema.columns)
        rows = self.client.select_rows(
            f"{names} from [{path}]", raw=True, format=YsonFormat(format="binary")
        ).read()
        parsed = yt.yson.loads(rows, yson_type="list_fragment", encoding=None)
        return [yt.yson.dumps(row, yson_format="binary") for row in parsed]

    def assert_kept(self, rows: pa.RecordBatch, checkpoint: Path) -> None:
        """Check that Spark had exactly these rows, and that the target holds what the queue does."""
        self.append(rows)
        (seen,) = self.run(checkpoint)
        (found,) = seen.combine_chunks().to_batches()
        assert self.encoded(found) == self.encoded(rows)
        assert len(self.stored(self.queue)) == rows.num_rows
        assert self.stored(self.target) == self.stored(self.queue)


@pytest.fixture
def trip(spark, cluster, client, tmp):
    register_source(spark)
    return RoundTrip(spark, cluster, client, tmp)


@on_request
@pytest.mark.timeout(0)
def test_random_tables_pass_through_spark(spark, cluster, client, tmp, tmp_path):
    """Every type that can be written, with values from all over its range."""
    register_source(spark)
    examples = drawn(EXAMPLES, number=EXAMPLES)
    for start in range(0, len(examples), PER_QUERY):
        columns, logical, rows = side_by_side(examples[start : start + PER_QUERY])
        trip = RoundTrip(spark, cluster, client, f"{tmp}/{start}")
        frame = trip.create(columns)
        trip.assert_kept(batch_of(frame, logical, rows), tmp_path / str(start))


def test_frame_of_every_type_passes_through_spark(trip, tmp_path):
    """Full, empty and full again."""
    columns = [{"name": "id", "type_v3": "int64"}]
    columns += [{"name": name, "type_v3": optional(kind)} for name, (kind, _) in CASES.items()]
    full = {name: value for name, (_, value) in CASES.items()}
    rows = [{"id": 1} | full, {"id": 2}, {"id": 3} | full]
    trip.assert_kept(pa.RecordBatch.from_pylist(rows, trip.create(columns)), tmp_path)
