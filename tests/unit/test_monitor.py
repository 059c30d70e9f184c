"""What Spark tells about queries, as events; and the description of a sink's jobs."""

from types import SimpleNamespace

import pytest

from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.observability import channel, listen
from yt_exactly_once.spark.compat.jobs import described
from yt_exactly_once.spark.monitor import Monitor, QueryWatcher

RUN = {"query": "q", "run": "r", "name": "orders"}
OURS = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 1, in <module>
yt_exactly_once.errors.FencedError: Another driver has continued [query=q]. Stop one of the two.
  at java.lang.Thread.run
"""


@pytest.fixture
def heard():
    """Every event of the process."""
    events = []
    end = listen(lambda *told: events.append(told))
    yield events
    end()


def of(**more):
    return SimpleNamespace(id="q", runId="r", name="orders", **more)


def test_life_of_a_query_is_told(heard):
    watcher = QueryWatcher()
    watcher.onQueryStarted(of())
    progress = of(batchId=3, numInputRows=10, batchDuration=1_500, sources=[])
    watcher.onQueryProgress(SimpleNamespace(progress=progress))
    watcher.onQueryIdle(of())
    watcher.onQueryTerminated(of(exception=None, errorClassOnException=None))
    assert heard == [
        ("query.started", RUN),
        ("query.progressed", {**RUN, "batch": 3, "rows": 10, "seconds": 1.5, "idle": False}),
        ("query.progressed", {**RUN, "idle": True}),
        ("query.stopped", RUN),
    ]


@pytest.mark.parametrize(
    ("ends", "behind"),
    [
        ([('{"t":{"0":4,"1":7}}', '{"t":{"0":9,"1":7}}'), ('{"u":{"0":1}}', '{"u":{"0":2}}')], 6),
        ([('{"t":{"0":4}}', '{"t":{"0":4}}'), ('{"logOffset":3}', None)], 0),
        ([("17", "19"), (None, None)], None),
    ],
    ids=["two topics", "beside files", "no topic"],
)
def test_lag_in_topics_of_kafka_comes_with_a_batch(heard, ends, behind):
    sources = [SimpleNamespace(endOffset=end, latestOffset=latest) for end, latest in ends]
    progress = of(batchId=3, numInputRows=10, batchDuration=1_500, sources=sources)
    QueryWatcher().onQueryProgress(SimpleNamespace(progress=progress))
    assert heard[0][1].get("rows_behind") == behind


@pytest.mark.parametrize(
    ("exception", "error_class", "reason", "error"),
    [
        (
            OURS,
            "FOREACH_BATCH",
            "FencedError",
            "Another driver has continued [query=q]. Stop one of the two.",
        ),
        ("No space\n at x", "STREAM_FAILED", "STREAM_FAILED", "No space"),
        (
            "java.io.IOException: No space\n at x",
            None,
            "java.io.IOException",
            "java.io.IOException: No space",
        ),
        (
            "java.io.IOException: no webhdfs://host:1/SECRET/home/q/offsets/1\n at x",
            None,
            "java.io.IOException",
            "java.io.IOException: no webhdfs://host:1/.../home/q/offsets/1",
        ),
    ],
    ids=["ours", "of Spark", "without a class", "with a secret"],
)
def test_error_that_ends_a_query_is_named(heard, exception, error_class, reason, error):
    ended = of(exception=exception, errorClassOnException=error_class)
    QueryWatcher().onQueryTerminated(ended)
    assert heard == [("query.stopped", {**RUN, "name": None, "reason": reason, "error": error})]


class Context:
    """A Spark context: its environment, its configuration and the properties of this thread."""

    def __init__(self, **conf):
        self.environment = {}
        self.properties = {}
        self.setLocalProperty = self.properties.__setitem__
        self.getLocalProperty = self.properties.get
        self.getConf = lambda: SimpleNamespace(
            get=lambda name, default: conf.get(name.rpartition(".")[2], default)
        )


def session(context):
    listeners = []
    streams = SimpleNamespace(addListener=listeners.append, removeListener=listeners.remove)
    found = SimpleNamespace(streams=streams, listeners=listeners)
    if context is not None:
        found.sparkContext = context
    return found


def test_workers_learn_the_address_while_a_monitor_is_open():
    context = Context(host="127.0.0.1")
    spark = session(context)
    first = Monitor(spark)
    second = Monitor(spark)
    first.close()
    assert context.environment[channel.ADDRESS_VARIABLE].startswith("127.0.0.1 ")
    second.close()
    assert context.environment == {}
    assert spark.listeners == []


@pytest.mark.parametrize("context", [None, Context(host="192.0.2.1")], ids=["Connect", "elsewhere"])
def test_without_an_address_only_queries_are_watched(context):
    """No context, or a driver behind an address that is not its own."""
    spark = session(context)
    monitor = Monitor(spark)
    assert len(spark.listeners) == 1
    assert context is None or context.environment == {}
    monitor.close()


@pytest.mark.parametrize("before", ["orders<br/>batch = 3", None])
def test_job_is_described_by_its_step_and_the_description_comes_back(before):
    """Spark's own says which query and batch it is."""
    context = Context()
    context.properties["spark.job.description"] = before
    batch = MicroBatch("q", 3, "r", ())
    frame = SimpleNamespace(sparkSession=session(context))
    seen = context.properties
    known = before or "query = q<br/>batch = 3"
    with described(frame, batch, "compute //t"):
        assert seen["spark.job.description"] == f"{known}<br/>yt_exactly_once: compute //t"
    assert context.properties["spark.job.description"] == before
    with described(SimpleNamespace(), batch, "compute //t"):
        pass
