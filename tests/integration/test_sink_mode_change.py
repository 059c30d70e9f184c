"""Idempotent mode left in the middle of a batch: nobody else knows which of its rows are there."""

from types import SimpleNamespace

import pyspark.sql.functions as sf
import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import PARTITION_COLUMN, ROW_COLUMN, columns, create_table
from tests.integration.streams import Broken, Heard, finish
from tests.tiers import first_of
from yt_exactly_once import Event
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.query.jobs import require_straight

ONE, TWO, THREE = "at-least-once", "transactional", "idempotent"


def break_off_in(batch):
    """Return a listener that ends the run when all rows of a batch are pushed, and none is recorded."""

    def act(event, fields):
        if event == Event.BATCH_COMPUTED and fields["batch"] == batch:
            raise Broken

    return Heard(act=act)


def broken_off(flow, batch=1):
    """Run in idempotent mode until then; return what the target holds."""
    with pytest.raises(StreamingQueryException, match="Broken"):
        finish(flow.start(flow.sink(break_off_in(batch), mode=THREE)))
    return flow.found()


@pytest.mark.parametrize("batch", first_of([0, 1]))
def test_transactional_mode_does_not_repeat_what_tasks_have_pushed(stream, batch):
    """It refuses before anything is written; the mode the batch was begun in finishes it."""
    flow = stream(rows=2_000)
    pushed = broken_off(flow, batch)
    assert len(pushed) == 3_000 * (batch + 1)
    assert "Finish the batch as it was begun" in flow.fail("ConfigError", mode=TWO)
    assert flow.found() == pushed
    flow.run(mode=THREE)
    flow.assert_exact()
    for partition in range(3):
        flow.queue.append(500, partition)
    flow.run(mode=TWO)
    flow.assert_exact()


def by_source(frame):
    """Give the rows the columns that tell where they come from."""
    return frame.withColumns({PARTITION_COLUMN: sf.col("part"), ROW_COLUMN: sf.col("row")})


def a_folder(client, path):
    client.create("map_node", path)


def a_static_table(client, path):
    client.create("table", path)


def a_table_of_others(client, path):
    create_table(client, path, columns({"id": "int64", "value": "int64"}, ["id"]))


@pytest.mark.nightly
@pytest.mark.parametrize("make", first_of([a_folder, a_static_table, a_table_of_others]))
def test_what_is_no_producer_is_no_matter_of_transactional_mode(stream, client, make):
    """The path is a default that nobody has chosen."""
    flow = stream(rows=100)
    make(client, f"{flow.target}_producer")
    flow.run()
    flow.assert_exact()


@pytest.mark.nightly
def test_unmounted_producer_is_refused_with_the_command_that_helps(stream, client):
    """Whether rows were pushed cannot be known."""
    flow = stream(rows=2_000)
    broken_off(flow)
    client.unmount_table(f"{flow.target}_producer", sync=True)
    text = flow.fail("TableNotMountedError", mode=TWO)
    assert f"yt mount-table {flow.target}_producer --sync" in text


def test_shuffle_that_cannot_be_known_is_refused():
    """On Spark Connect there is no plan to look at."""
    job = SimpleNamespace(sparkSession=SimpleNamespace())
    with pytest.raises(ConfigError, match="cannot show whether rows are shuffled"):
        require_straight(job, MicroBatch("query", 0, "run"))
