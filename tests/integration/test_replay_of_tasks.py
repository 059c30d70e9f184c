"""Idempotent mode over restarts with other code, other cores and other plans: exact, or refused for good.

A run ends when the tasks have pushed rows of a batch and the driver has not recorded it. The next run gets
the batch in another form.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pyspark.sql.functions as sf
import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import PARTITION_COLUMN, ROW_COLUMN, columns, create_table
from tests.integration.streams import QUICK, finish
from tests.tiers import first_of
from yt_exactly_once import TransactionalSink
from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.errors import ConfigError, NotOneToOneError
from yt_exactly_once.spark.sink.modes import idempotent, push

pytestmark = pytest.mark.further

ONE, THREE = "at-least-once", "idempotent"


class Broken(Exception):  # noqa: N818 - what breaks is the driver
    """Raised by a listener to end a run."""


@contextmanager
def breaking_off():
    """End every run when all rows of a batch are pushed, and it is not recorded."""
    with mock.patch.object(BatchCommit, "commit", side_effect=Broken):
        yield


def run(flow, change, **options):
    """Run a query whose function changes the DataFrame before it calls the sink."""
    sink = flow.sink(**{"mode": THREE} | options)
    finish(flow.start(lambda frame, batch: sink(change(frame), batch)))


def begin(flow, change):
    """Push the rows of the first batch, and return what the target holds then."""
    with breaking_off(), pytest.raises(StreamingQueryException, match="Broken"):
        run(flow, change)
    return flow.found()


def as_read(frame):
    return frame


def by_source(frame):
    """Give the rows the columns that tell where they come from."""
    return frame.withColumns({PARTITION_COLUMN: sf.col("part"), ROW_COLUMN: sf.col("row")})


def of_source(change):
    """Change rows that carry their source."""
    return lambda frame: change(by_source(frame))


def no_tens(frame):
    return frame.filter("row % 10 != 0")


def in_one_task(frame):
    return frame.coalesce(1)


def in_two_tasks(frame):
    return frame.coalesce(2)


def at_random(frame):
    return frame.filter(sf.rand() < 0.5)


@pytest.mark.parametrize(
    ("begun", "changed"),
    [
        pytest.param(as_read, no_tens, id="filter"),
        pytest.param(no_tens, as_read, id="filter removed", marks=pytest.mark.nightly),
        pytest.param(
            of_source(as_read),
            of_source(no_tens),
            id="filter, by source",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            of_source(no_tens),
            of_source(as_read),
            id="filter removed, by source",
            marks=pytest.mark.nightly,
        ),
        pytest.param(in_two_tasks, in_one_task, id="fewer cores", marks=pytest.mark.nightly),
        pytest.param(in_one_task, in_two_tasks, id="more cores", marks=pytest.mark.nightly),
        pytest.param(
            as_read,
            lambda frame: frame.withColumn("row", sf.col("row") + 1),
            id="other values",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            as_read, lambda frame: frame.filter("false"), id="nothing", marks=pytest.mark.nightly
        ),
    ],
)
def test_replay_that_differs_is_refused_until_the_old_code_is_back(stream, begun, changed):
    """Nothing is dropped and nothing pushed, however often it is tried."""
    flow = stream(rows=100)
    pushed = begin(flow, begun)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=r"NotOneToOneError.*pushed before"):
            run(flow, changed)
        assert flow.found() == pushed
    run(flow, begun)
    assert flow.found() == pushed
    assert flow.entry().ends[flow.queue.path] == flow.queue.ends()


@pytest.mark.parametrize("is_logged", first_of([True, False]))
def test_tasks_that_share_queue_partitions_come_again(stream, is_logged):
    """Spark's log has them, so positions hold whatever the options say; without it a replay is refused."""
    flow = stream(rows=100)
    flow.shared_task_rows = 200
    pushed = begin(flow, as_read)
    tasks = {row["tablet"] for row in tablets_of(flow)}
    assert len(tasks) == 2
    flow.shared_task_rows = 1
    if not is_logged:
        forget_shared_tasks(flow)
        with pytest.raises(StreamingQueryException, match=r"NotOneToOneError.*pushed before"):
            run(flow, as_read)
        return
    run(flow, as_read)
    assert flow.found() == pushed
    assert flow.entry().ends[flow.queue.path] == flow.queue.ends()


def tablets_of(flow):
    """Return the tablet of every row in the target."""
    return list(flow.client.select_rows(f"[$tablet_index] as tablet from [{flow.target}]"))


def forget_shared_tasks(flow):
    """Make Spark's log as an older version of this package has written it."""
    log = flow.checkpoint / "offsets" / "0"
    *head, offset = log.read_text().splitlines()
    older = json.loads(offset)
    assert older.pop("shared") == [[0, 1]]
    log.write_text("\n".join([*head, json.dumps(older)]))
    (log.parent / ".0.crc").unlink()


@pytest.mark.nightly
def test_comparison_off_is_noticed(stream, monkeypatch):
    """Rows behind the filter are lost, and a part of the others is there twice."""
    monkeypatch.setattr(idempotent, "require_same_rows", lambda *_: None)
    monkeypatch.setattr(push._NumberedSession, "_require_same_rows", lambda *_: None)
    flow = stream(rows=100)
    pushed = begin(flow, in_two_tasks)
    run(flow, in_one_task)
    assert len(flow.found()) > len(set(pushed)) == 300


@pytest.mark.nightly
def test_random_rows_are_found_on_the_replay(stream):
    """`rand()` without a seed gives others in every run; the way out repeats rows, and leads on."""
    flow = stream(rows=100)
    pushed = begin(flow, at_random)
    with pytest.raises(StreamingQueryException, match=r"NotOneToOneError.*at-least-once"):
        run(flow, at_random)
    assert flow.found() == pushed
    run(flow, as_read, mode=ONE)
    flow.queue.append(50)
    run(flow, as_read)
    assert len(flow.found()) == len(pushed) + 350
    assert flow.entry().ends[flow.queue.path] == flow.queue.ends()


@pytest.mark.parametrize("then", first_of([in_one_task, in_two_tasks, as_read]))
def test_rows_that_carry_their_source_may_come_in_other_tasks(stream, faults, then):
    """A task dies; after the restart there are other cores, and so other tasks."""
    flow = stream(rows=1_000)
    here = {"queue_path": flow.target}
    faults.inject("lose_request", "push_queue_producer", match=here, after=4, count=None)
    with pytest.raises(StreamingQueryException):
        run(flow, of_source(in_two_tasks), dyn_batch_size=100)
    assert 0 < len(flow.found()) < 3_000
    faults.clear_faults()
    run(flow, of_source(then), dyn_batch_size=70)
    flow.assert_exact()


@pytest.mark.nightly
@pytest.mark.parametrize(("first", "second"), first_of([(3, 2), (2, 3)]))
def test_file_source_with_other_cores_is_refused(spark, stream, tmp_path, first, second):
    """Spark cuts files by the number of cores; here a setting takes the place of the cores."""
    flow = stream(rows=1)
    folder = tmp_path / "files"
    spark.range(600).selectExpr(
        "CAST(0 AS INT) AS part", "id AS row", "CAST(id AS STRING) AS text"
    ).repartition(6).write.parquet(str(folder))
    target = create_table(
        flow.client,
        f"{flow.target}_files",
        columns({"part": "int64", "row": "int64", "text": "utf8"}),
    )

    def start(cores):
        sink = TransactionalSink(
            target,
            mode=THREE,
            proxy=flow.cluster.proxy_urls[0],
            retry=QUICK,
        )
        spark.conf.set("spark.sql.files.minPartitionNum", cores)
        spark.conf.set("spark.sql.files.openCostInBytes", 1)
        try:
            schema = "part INT, row LONG, text STRING"
            files = spark.readStream.schema(schema).parquet(str(folder)).writeStream
            checkpoint = str(tmp_path / "checkpoint")
            query = files.foreachBatch(sink).option("checkpointLocation", checkpoint)
            finish(query.trigger(availableNow=True).start())
        finally:
            spark.conf.unset("spark.sql.files.minPartitionNum")
            spark.conf.unset("spark.sql.files.openCostInBytes")

    def found():
        return sorted(row["row"] for row in flow.client.select_rows(f"row from [{target}]"))

    with breaking_off(), pytest.raises(StreamingQueryException, match="Broken"):
        start(first)
    with pytest.raises(
        StreamingQueryException, match=r"NotOneToOneError.*as many Spark partitions"
    ):
        start(second)
    start(first)
    assert found() == list(range(600))


@pytest.mark.nightly
def test_rows_cleaned_after_an_error_are_compared_too(stream):
    """The function catches an error, cleans the DataFrame, and calls the sink again in the same run."""
    flow = stream(rows=100)
    sink, caught = flow.sink(mode=THREE), []

    def write(frame, batch):
        with breaking_off(), pytest.raises(Broken):
            sink(frame, batch)
        with pytest.raises(NotOneToOneError, match="pushed before") as error:
            sink(frame.filter("row != 5"), batch)
        caught.append(error)
        sink(frame, batch)

    finish(flow.start(write))
    assert caught
    flow.assert_exact()


REFUSED = {
    "repartition": lambda frame: frame.repartition(2),
    "repartition, cached": lambda frame: frame.repartition(2).persist(),
    "distinct, cached": lambda frame: frame.distinct().persist(),
    "local checkpoint": lambda frame: frame.repartition(2).localCheckpoint(),
    "lazy local checkpoint": lambda frame: frame.repartition(2).localCheckpoint(eager=False),
    "checkpoint": lambda frame: frame.repartition(2).checkpoint(),
    "limit": lambda frame: frame.limit(50),
    "limit and more": lambda frame: frame.limit(50).filter("row >= 0"),
    "order by": lambda frame: frame.orderBy("row"),
    "order by, limit": lambda frame: frame.orderBy("row").limit(50),
    "offset": lambda frame: frame.offset(5),
    "RDD": lambda frame: frame.rdd.repartition(2).toDF(frame.schema),
    "rows collected": lambda frame: frame.sparkSession.createDataFrame(
        frame.collect(), frame.schema
    ),
    "union with rows from elsewhere": lambda frame: frame.union(
        frame.sparkSession.createDataFrame(frame.take(1), frame.schema)
    ),
    "shuffle join": lambda frame: frame.hint("merge").join(
        frame.select("part", "row"), ["part", "row"]
    ),
}
"""What may give a repeated task other rows."""


@pytest.mark.nightly
def test_plans_that_may_move_rows_are_refused_by_position(spark, stream, tmp_path):
    """Each before a row is pushed; then the DataFrame of the batch itself is written."""
    spark.sparkContext.setCheckpointDir(str(tmp_path / "rdds"))
    flow = stream(rows=100)
    sink, refused = flow.sink(mode=THREE), []

    def write(frame, batch):
        for name, change in REFUSED.items():
            with pytest.raises(ConfigError, match="number the rows by their position"):
                sink(change(frame).select(*frame.columns), batch)
            refused.append(name)
        assert flow.found() == []
        sink(frame, batch)

    finish(flow.start(write))
    spark.catalog.clearCache()
    assert refused == list(REFUSED)
    flow.assert_exact()


def joined(frame):
    spark = frame.sparkSession
    few = spark.createDataFrame([(number,) for number in range(3)], "part BIGINT")
    return frame.join(sf.broadcast(few), "part", "left").select(*frame.columns)


TAKEN: dict[str, Any] = {
    "cached": lambda frame: frame.persist(),
    "coalesce": lambda frame: frame.coalesce(2),
    "sorted within": lambda frame: frame.sortWithinPartitions("row"),
    "RDD": lambda frame: frame.rdd.map(tuple).toDF(frame.schema),
    "broadcast join": joined,
    "Python": lambda frame: frame.mapInArrow(lambda batches: batches, frame.schema),
    "typed map": lambda frame: frame.withColumn("row", sf.expr("transform(array(row), x -> x)[0]")),
}
"""What gives every task the same rows in the same order."""


@pytest.mark.nightly
def test_plans_that_keep_rows_in_their_tasks_are_taken_by_position(spark, stream):
    """One batch for each of them."""
    flow = stream(rows=100 * len(TAKEN), rows_per_partition=100)
    sink, plans = flow.sink(mode=THREE), list(TAKEN.values())
    finish(flow.start(lambda frame, batch: sink(plans[batch](frame), batch)))
    spark.catalog.clearCache()
    flow.assert_exact()


@pytest.mark.nightly
def test_shuffle_that_appears_in_a_later_batch_is_refused(stream):
    """Every batch is looked at."""
    flow = stream(rows=200, rows_per_partition=100)
    sink = flow.sink(mode=THREE)

    def write(frame, batch):
        sink(frame.repartition(2) if batch else frame, batch)

    with pytest.raises(StreamingQueryException, match="has a shuffle"):
        finish(flow.start(write))
    assert len(flow.found()) == 300
