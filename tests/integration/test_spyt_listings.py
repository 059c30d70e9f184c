"""What SPYT's streaming documentation shows in Python, written anew: as it is, or with our sink's line.

The proxy comes from the environment, as it does for a SPYT job, and no option is added to a source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import length, lit

from tests.flows import columns, create_table
from tests.integration.streams import finish
from tests.tiers import first_of
from yt_exactly_once import TransactionalSink, register_source

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

pytestmark = pytest.mark.further

KEYED_BY_SOURCE = ("tablet_idx", "row_idx")


@dataclass
class Job:
    """What every listing begins with: a queue, its consumer, a result table, a checkpoint.

    Attributes:
        spark: session.
        client: of the cluster.
        folder: in Cypress.
        checkpoints_path: on disk; `yt:///` needs SPYT's file system.
        keeps_line: whether the sink is `.format("yt")`, as in the documentation.
    """

    spark: Any
    client: Any
    folder: str
    checkpoints_path: Path
    keeps_line: bool

    @property
    def consumer_path(self) -> str:
        """One consumer, for every queue."""
        return f"{self.folder}/consumer"

    @property
    def result_table_path(self) -> str:
        """Where the results go."""
        return f"{self.folder}/result"

    def queue(self, types: dict[str, Any], name: str = "queue", tablet_count: int = 1) -> str:
        """Create a queue and register the consumer."""
        path = create_table(
            self.client, f"{self.folder}/{name}", columns(types), tablet_count=tablet_count
        )
        if not self.client.exists(self.consumer_path):
            self.client.create("queue_consumer", self.consumer_path)
        self.client.register_queue_consumer(path, self.consumer_path, vital=True)
        return path

    def fill(self, path: str, rows: list[dict[str, Any]], tablet: int = 0) -> None:
        """Append rows."""
        self.client.insert_rows(path, [{"$tablet_index": tablet, **row} for row in rows])

    def results(self, names: str) -> list[tuple[Any, ...]]:
        """Return the results in the table's order."""
        rows = self.client.select_rows(f"{names} from [{self.result_table_path}]")
        return [tuple(row[name] for name in names.split(", ")) for row in rows]

    def reading(self) -> DataStreamReader:
        """Begin as every listing does."""
        return self.spark.readStream.format("yt").option("consumer_path", self.consumer_path)

    def writing(self, frame: DataFrame) -> StreamingQuery:
        """End as every listing does, or with our sink in the place of `.format("yt").option("path", …)`."""
        writer = frame.writeStream.outputMode("append").option(
            "checkpointLocation", str(self.checkpoints_path)
        )
        if self.keeps_line:
            writer = writer.format("yt").option("path", self.result_table_path)
        else:
            writer = writer.foreachBatch(TransactionalSink(self.result_table_path))
        return writer.trigger(availableNow=True).start()


@pytest.fixture(params=["function", pytest.param("format", marks=pytest.mark.nightly)])
def job(request, spark, cluster, client, tmp, tmp_path, monkeypatch):
    """Set the environment of a job that has nothing of ours but the sink's line."""
    monkeypatch.setenv("YT_PROXY", cluster.proxy_urls[0])
    register_source(spark)
    yield Job(spark, client, tmp, tmp_path, request.param == "format")
    monkeypatch.undo()
    register_source(spark)


def test_queue_to_queue(job):
    """One column is passed on with its length."""
    queue = job.queue({"data": "utf8?", "other": "int64?"})
    create_table(
        job.client, job.result_table_path, columns({"data": "utf8?", "data_length": "int32?"})
    )
    job.fill(queue, [{"data": text, "other": 1} for text in ("a", "bb", "")])
    df = job.reading().load(queue)
    finish(job.writing(df.select("data").withColumn("data_length", length("data"))))
    assert job.results("data, data_length") == [("a", 1), ("bb", 2), ("", 0)]


@pytest.mark.nightly
def test_limited_batches(job):
    """Every batch takes at most so many rows of each partition, every request so many rows."""
    queue = job.queue({"number": "int64"}, tablet_count=2)
    create_table(job.client, job.result_table_path, columns({"number": "int64"}), tablet_count=2)
    for tablet in range(2):
        job.fill(queue, [{"number": tablet * 10_000 + n} for n in range(2_500)], tablet)
    job.spark.conf.set("spark.yt.write.dynBatchSize", 100)
    try:
        query = job.writing(job.reading().option("max_rows_per_partition", 1000).load(queue))
        finish(query)
    finally:
        job.spark.conf.unset("spark.yt.write.dynBatchSize")
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert [size for size in sizes if size] == [2_000, 2_000, 1_000]
    expected = [tablet * 10_000 + n for tablet in range(2) for n in range(2_500)]
    assert sorted(job.results("number")) == [(number,) for number in expected]


COMPOSITES = [
    {"name": "id", "type_v3": "int64"},
    {"name": "tags", "type_v3": {"type_name": "list", "item": "utf8"}},
    {"name": "counts", "type_v3": {"type_name": "dict", "key": "utf8", "value": "int64"}},
    {
        "name": "place",
        "type_v3": {
            "type_name": "struct",
            "members": [
                {"name": "x", "type": "double"},
                {"name": "label", "type": {"type_name": "optional", "item": "utf8"}},
            ],
        },
    },
    {
        "name": "pair",
        "type_v3": {"type_name": "tuple", "elements": [{"type": "int64"}, {"type": "utf8"}]},
    },
]


@pytest.mark.nightly
def test_composite_types(job):
    """Lists, dicts, structs and tuples keep their types on the way."""
    queue = create_table(job.client, f"{job.folder}/queue", COMPOSITES)
    job.client.create("queue_consumer", job.consumer_path)
    job.client.register_queue_consumer(queue, job.consumer_path, vital=True)
    create_table(job.client, job.result_table_path, COMPOSITES)
    rows = [
        {
            "id": n,
            "tags": ["a", "b"][:n],
            "counts": [["k", n]],
            "place": {"x": n / 2, "label": None},
            "pair": [n, "p"],
        }
        for n in range(3)
    ]
    job.fill(queue, rows)
    finish(job.writing(job.reading().option("parsing_type_v3", "true").load(queue)))
    found = job.client.select_rows(f"id, tags, counts, place, pair from [{job.result_table_path}]")
    assert [dict(row) for row in found] == rows


def test_service_columns(job):
    """Renamed, they are the key of a sorted table, so that no row can be there twice."""
    queue = job.queue({"some_data": "utf8"}, tablet_count=2)
    types = {"tablet_idx": "int64", "row_idx": "int64", "some_data": "utf8?"}
    create_table(job.client, job.result_table_path, columns(types, KEYED_BY_SOURCE))
    for tablet in range(2):
        job.fill(queue, [{"some_data": f"{tablet}-{row}"} for row in range(3)], tablet)
    df = (
        job.reading()
        .option("include_service_columns", True)
        .load(queue)
        .withColumnRenamed("__spyt_streaming_src_tablet_index", "tablet_idx")
        .withColumnRenamed("__spyt_streaming_src_row_index", "row_idx")
    )
    finish(job.writing(df))
    expected = [(tablet, row, f"{tablet}-{row}") for tablet in range(2) for row in range(3)]
    assert job.results("tablet_idx, row_idx, some_data") == expected


@pytest.mark.nightly
@pytest.mark.parametrize("mode", first_of(["given by the query", "given by the source"]))
def test_several_queues_with_an_id(job, mode):
    """One consumer reads both; the path of the queue is part of the key."""
    paths = [job.queue({"some_data": "utf8"}, name) for name in ("first", "second")]
    types = {"queue_id": "utf8", "tablet_idx": "int64", "row_idx": "int64", "some_data": "utf8?"}
    keys = ("queue_id", *KEYED_BY_SOURCE)
    create_table(job.client, job.result_table_path, columns(types, keys))
    frames = []
    for path in paths:
        job.fill(path, [{"some_data": f"{path[-5:]}-{row}"} for row in range(3)])
        reader = job.reading().option("include_service_columns", True)
        if mode == "given by the query":
            frames.append(reader.load(path).withColumn("queue_id", lit(path)))
        else:
            frame = reader.option("include_queue_path", True).load(path)
            frames.append(frame.withColumnRenamed("__spyt_streaming_src_queue_path", "queue_id"))
    df1, df2 = frames
    df = (
        df1.union(df2)
        .withColumnRenamed("__spyt_streaming_src_tablet_index", "tablet_idx")
        .withColumnRenamed("__spyt_streaming_src_row_index", "row_idx")
    )
    finish(job.writing(df))
    expected = [(path, 0, row, f"{path[-5:]}-{row}") for path in paths for row in range(3)]
    assert job.results("queue_id, tablet_idx, row_idx, some_data") == sorted(expected)
