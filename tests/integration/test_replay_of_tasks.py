"""Idempotent mode over restarts with other code, other cores and other plans: exact, or refused for good.

A run ends when the tasks have pushed rows of a batch and the driver has not recorded it. The next run gets
the batch in another form.
"""

from contextlib import contextmanager
from typing import Any
from unittest import mock

import pyspark.sql.functions as sf
import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import numbered
from tests.integration.streams import finish
from tests.tiers import first_of
from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.errors import ConfigError

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


def of_source(change):
    """Change rows that carry their source."""
    return lambda frame: change(numbered(frame))


def in_one_task(frame):
    return frame.coalesce(1)


def in_two_tasks(frame):
    return frame.coalesce(2)


def test_tasks_that_share_queue_partitions_come_again(stream):
    """Spark's log has them, so positions hold whatever the options say."""
    flow = stream(rows=100)
    flow.shared_task_rows = 200
    pushed = begin(flow, as_read)
    rows = flow.client.select_rows(f"[$tablet_index] as tablet from [{flow.target}]")
    assert len({row["tablet"] for row in rows}) == 2
    flow.shared_task_rows = 1
    run(flow, as_read)
    assert flow.found() == pushed
    assert flow.entry().ends[flow.queue.path] == flow.queue.ends()


@pytest.mark.parametrize("kept", ["part >= 0", "part <> 1"], ids=["all", "an empty partition"])
def test_rows_that_the_driver_has_pushed_come_again_from_tasks(stream, kept):
    """In the same sessions, also where Arrow's batches do not tell the Spark partitions apart."""
    flow = stream(rows=40, rows_per_partition=10)
    commit, senders = BatchCommit.commit, []

    def breaking(self, parts, resumed=None):
        senders.append(parts[0].targets[0].sent_by)
        if len(senders) == 3:
            raise Broken
        return commit(self, parts, resumed)

    with (
        mock.patch.object(BatchCommit, "commit", breaking),
        pytest.raises(StreamingQueryException, match="Broken"),
    ):
        run(flow, lambda frame: frame.filter(kept))
    assert senders == ["tasks", "driver", "driver"]
    pushed = flow.found()
    run(flow, lambda frame: frame.filter(kept))
    found = flow.found()
    assert len(pushed) * 4 == len(found) * 3
    assert len(set(found)) == len(found) == {"part >= 0": 120, "part <> 1": 80}[kept]


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
