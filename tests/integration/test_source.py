"""The source `yt` in real queries against the embedded cluster: what arrives, once, in order."""

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from tests.cluster_fixtures import HAZARDS
from tests.tiers import first_of
from yt_exactly_once import TransactionalSink
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.registration import register_source

SCHEMA = [{"name": "id", "type": "int64"}, {"name": "name", "type": "string"}]
WEIGHED = [
    *SCHEMA,
    {"name": "$timestamp", "type": "uint64"},
    {"name": "$cumulative_data_weight", "type": "int64"},
]
QUEUE_PATH, COMMITTED = "__spyt_streaming_src_queue_path", "__spyt_streaming_src_timestamp"


@dataclass
class Queue:
    """A queue with a registered consumer, and how a test drives both."""

    client: Any
    path: str
    consumer: str
    partitions: int
    written: dict[int, int] = field(default_factory=dict)

    @classmethod
    def create(cls, client, folder, *, partitions=1, schema=SCHEMA, name="queue"):
        queue = cls(client, f"{folder}/{name}", f"{folder}/{name}_consumer", partitions)
        attributes = {"dynamic": True, "schema": schema, "tablet_count": partitions}
        client.create("table", queue.path, attributes=attributes)
        client.mount_table(queue.path, sync=True)
        client.create("queue_consumer", queue.consumer)
        client.register_queue_consumer(queue.path, queue.consumer, vital=True)
        return queue

    def append(self, count, partition=0):
        """Write rows that all can see then; an id is the row index, plus a million per partition."""
        first = self.written.get(partition, 0)
        ids = [partition * 1_000_000 + row for row in range(first, first + count)]
        rows = [{"$tablet_index": partition, "id": one, "name": f"n{one}"} for one in ids]
        self.client.insert_rows(self.path, rows)
        time.sleep(HAZARDS["visibility_delay_seconds"])
        self.written[partition] = first + count
        return ids

    def move(self, offset, partition=0):
        self.client.advance_queue_consumer(
            self.consumer, self.path, partition, None, offset, client_side=False
        )

    def trim(self, rows, partition=0):
        self.client.trim_rows(self.path, partition, rows)

    def reshard(self, partitions):
        # The first unmount flushes, and only a mounted tablet drops the chunks that are trimmed.
        self.client.unmount_table(self.path, sync=True)
        self.client.mount_table(self.path, sync=True)
        self.client.unmount_table(self.path, sync=True)
        self.client.reshard_table(self.path, tablet_count=partitions, sync=True)
        self.client.mount_table(self.path, sync=True)

    def recreate(self):
        """Put another queue in the place of this one."""
        self.client.remove(self.path)
        self.client.create("table", self.path, attributes={"dynamic": True, "schema": SCHEMA})
        self.client.mount_table(self.path, sync=True)
        self.written.clear()

    def stored(self):
        """Where the consumer stands, per partition it was moved in."""
        rows = self.client.select_rows(f"partition_index, [offset] from [{self.consumer}]")
        return {int(row["partition_index"]): int(row["offset"]) for row in rows}


@pytest.fixture
def queue(client, tmp):
    return Queue.create(client, tmp)


@pytest.fixture
def read(spark, cluster):
    """Open a queue as a stream; keyword arguments are options, `None` leaves one out."""
    register_source(spark)

    def open_stream(queue, **options):
        given = {"proxy": cluster.proxy_urls[0], "consumer_path": queue.consumer} | options
        reader = spark.readStream.format("yt")
        for name, value in given.items():
            if value is not None:
                reader = reader.option(name, value)
        return reader.load(queue.path)

    return open_stream


@dataclass
class Batches:
    """What a query gave out: rows per batch number, as often as the batch was run."""

    seen: list[tuple[int, list[Any]]] = field(default_factory=list)
    fail_at: int | None = None

    def __call__(self, frame, batch_id):
        if batch_id == self.fail_at:
            raise RuntimeError("the sink failed on purpose")
        self.seen.append((batch_id, frame.collect()))

    @property
    def ids(self):
        return [row.id for _, rows in self.seen for row in rows]

    @property
    def sizes(self):
        return [len(rows) for _, rows in self.seen]


def run(frame, checkpoint, batches=None):
    """Run a query over what is there now, until it ends."""
    batches = batches if batches is not None else Batches()
    query = (
        frame.writeStream.foreachBatch(batches)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return batches


@contextmanager
def running(frame, checkpoint):
    """Keep a query running, and stop it whatever happens."""
    batches = Batches()
    query = (
        frame.writeStream.foreachBatch(batches)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        yield query, batches
    finally:
        query.stop()


def fails(error, match, call):
    """Check that a call fails with our error by name and a text; return the whole text."""
    with pytest.raises((StreamingQueryException, AnalysisException)) as caught:
        call()
    text = str(caught.value)
    assert f"yt_exactly_once.errors.{error}: " in text
    assert match in text
    return text


# What arrives.


def test_rows_arrive_once_and_in_order_per_partition(queue, client, tmp, read, tmp_path):
    """Every row of every partition, in the order of the queue."""
    queue = Queue.create(client, tmp, partitions=3, name="wide")
    expected = {part: queue.append(500 + part, part) for part in range(3)}
    rows = [row for _, rows in run(read(queue), tmp_path).seen for row in rows]
    for part, ids in expected.items():
        assert [row.id for row in rows if row.id // 1_000_000 == part] == ids
    assert len(rows) == sum(map(len, expected.values()))
    assert rows[0].asDict() == {"id": rows[0].id, "name": f"n{rows[0].id}"}


@pytest.mark.further
def test_queue_path_and_commit_time_come_on_request(client, tmp, read, tmp_path):
    """Of each of several queues, in front of their columns."""
    queues = [Queue.create(client, tmp, schema=WEIGHED, name=name) for name in ("one", "other")]
    began = datetime.now(UTC) - timedelta(seconds=5)
    for queue in queues:
        queue.append(2)
    options = {"include_queue_path": True, "include_timestamp": True}
    one, other = (read(queue, **options) for queue in queues)
    assert one.dtypes[:2] == [(QUEUE_PATH, "string"), (COMMITTED, "timestamp")]
    rows = [row for _, rows in run(one.union(other), tmp_path).seen for row in rows]
    assert [(row[QUEUE_PATH], row.id) for row in rows] == [
        (queue.path, number) for queue in queues for number in (0, 1)
    ]
    # Python shows an instant in the time zone of the machine.
    assert all(began < row[COMMITTED].astimezone(UTC) <= datetime.now(UTC) for row in rows)


def test_rows_that_arrive_later_come_in_later_batches(queue, read, tmp_path):
    """A running query sees new rows, and its consumer is at their end when it is idle."""
    with running(read(queue), tmp_path) as (query, batches):
        first = queue.append(5)
        query.processAllAvailable()
        second = queue.append(7)
        query.processAllAvailable()
        assert batches.ids == first + second
        assert queue.stored() == {0: 12}


# How much, and until where.


def test_available_now_leaves_the_consumer_at_its_end(queue, read, tmp_path):
    """Although Spark never tells a source that the last batch is done."""
    queue.append(25)
    run(read(queue, max_rows_per_partition=10), tmp_path)
    assert queue.stored() == {0: 25}


# Restarts.


@pytest.mark.parametrize("moved_to", first_of([0, 9]))
def test_restart_continues_at_sparks_offset_wherever_the_consumer_is(
    queue, read, tmp_path, moved_to
):
    """Once Spark has an offset, the consumer has no say."""
    queue.append(5)
    run(read(queue), tmp_path)
    later = queue.append(5)
    queue.move(moved_to)
    assert run(read(queue), tmp_path).ids == later


def forget_commit(checkpoint, batch_id):
    """Leave a checkpoint as a crash between a batch and Spark's note that it is done would."""
    (checkpoint / "commits" / str(batch_id)).unlink()
    (checkpoint / "commits" / f".{batch_id}.crc").unlink(missing_ok=True)


def test_replayed_later_batch_has_the_rows_it_had(queue, read, tmp_path):
    """A batch that failed is repeated with the same rows before anything new."""
    queue.append(5)
    run(read(queue), tmp_path)
    second = queue.append(3)
    with pytest.raises(StreamingQueryException, match="failed on purpose"):
        run(read(queue), tmp_path, Batches(fail_at=1))
    third = queue.append(4)
    batches = run(read(queue), tmp_path)
    assert [[row.id for row in rows] for _, rows in batches.seen] == [second, third]


# Where a query begins.


@pytest.mark.further
@pytest.mark.parametrize(
    ("starting_offsets", "first"),
    first_of(
        [("earliest", 2), (None, 4), ("committed", 4), ("latest", 10), ('{"0": 7}', 7)], count=2
    ),
)
def test_query_without_a_checkpoint_begins_where_it_is_told(
    queue, read, tmp_path, starting_offsets, first
):
    """The queue holds rows 2 to 9, the consumer stands at 4."""
    queue.append(10)
    queue.move(4)
    queue.trim(2)
    with running(read(queue, starting_offsets=starting_offsets), tmp_path) as (query, batches):
        query.processAllAvailable()
        queue.append(2)
        query.processAllAvailable()
        assert batches.ids == list(range(first, 12))


# The queue changes.


@pytest.mark.further
def test_added_partitions_are_picked_up_by_a_running_query(queue, read, tmp_path):
    """Nothing is restarted."""
    with running(read(queue), tmp_path) as (query, batches):
        first = queue.append(5)
        query.processAllAvailable()
        queue.reshard(2)
        later = queue.append(3, 1)
        query.processAllAvailable()
        assert batches.ids == first + later


def test_trimmed_rows_stop_the_query(queue, read, tmp_path):
    """The error names the rows, and nothing after them was given out."""
    queue.append(5)
    run(read(queue), tmp_path)
    queue.append(10)
    queue.trim(8)
    batches = Batches()
    text = fails("DataLossError", "Rows 5 to 7", lambda: run(read(queue), tmp_path, batches))
    assert "fail_on_data_loss" in text
    assert batches.seen == []


def test_replay_of_trimmed_rows_is_planned_and_fails_only_when_read(queue, read, tmp_path):
    """A sink that skips a replayed batch does not need its rows; one that reads it must not miss any."""
    queue.append(5)
    run(read(queue), tmp_path)
    forget_commit(tmp_path, 0)
    queue.trim(5)
    later = queue.append(2)
    fails("DataLossError", "Rows 0 to 4", lambda: run(read(queue), tmp_path))

    batches = Batches()

    def skipping(frame, batch_id):
        if batch_id > 0:
            batches(frame, batch_id)

    run(read(queue), tmp_path, skipping)
    assert batches.ids == later


@pytest.mark.further
@pytest.mark.parametrize("mode", first_of(["transactional", "idempotent"]))
def test_recreated_queue_is_read_from_its_beginning_when_asked_to(
    queue, client, read, tmp_path, cluster, mode
):
    """Every row of both queues is written once, and the consumer follows the new one."""
    target = f"{queue.path}_target"
    client.create("table", target, attributes={"dynamic": True, "schema": SCHEMA})
    client.mount_table(target, sync=True)
    sink = TransactionalSink(target, proxy=cluster.proxy_urls[0], mode=mode)

    def deliver():
        options = {"fail_on_data_loss": False, "include_service_columns": True}
        run(read(queue, max_rows_per_partition=6, **options), tmp_path, sink)

    first = queue.append(10)
    deliver()
    queue.recreate()
    second = queue.append(15)
    deliver()
    last = max(int(file.name) for file in (tmp_path / "commits").iterdir() if file.name.isdigit())
    forget_commit(tmp_path, last)
    third = queue.append(4)
    deliver()
    rows = client.select_rows(f"id from [{target}]")
    assert [row["id"] for row in rows] == first + second + third
    assert queue.stored() == {0: 19}


@pytest.mark.further
def test_schema_changed_under_a_running_query_is_an_error(queue, read, tmp_path):
    """And a restart reads the batch with the new columns."""
    queue.append(5)
    with running(read(queue), tmp_path) as (query, _):
        query.processAllAvailable()
        queue.client.unmount_table(queue.path, sync=True)
        queue.client.alter_table(queue.path, schema=[*SCHEMA, {"name": "more", "type": "int64"}])
        queue.client.mount_table(queue.path, sync=True)
        later = queue.append(2)
        text = fails("SchemaMismatchError", "more was added", query.processAllAvailable)
        assert "Load the queue again" in text
    batches = run(read(queue), tmp_path)
    assert batches.ids == later
    assert batches.seen[0][1][0].more is None


# Secrets.


def test_wrong_token_is_refused_and_not_shown(spark):
    """Neither by us nor by the client whose error is the cause."""
    register_source(spark)
    wrong = "a-very-wrong-token"
    with LocalCluster(token="the-right-token") as guarded:
        reader = spark.readStream.format("yt").option("proxy", guarded.proxy_urls[0])
        text = fails(
            "AccessError", "token", lambda: reader.option("token", wrong).load("//tmp/queue")
        )
    assert wrong not in text


def test_token_is_shown_nowhere(client, queue, read, tmp_path, capfd):
    """Not in plans, nor in the checkpoint, nor in errors."""
    token = client.issue_token("root")
    frame = read(queue, token=token)
    frame.explain("extended")
    queue.append(3)
    run(frame, tmp_path)
    queue.append(3)
    queue.trim(5)
    text = fails("DataLossError", "Rows 3", lambda: run(read(queue, token=token), tmp_path))
    output = capfd.readouterr()
    files = [
        path.read_text(errors="replace") for path in Path(tmp_path).rglob("*") if path.is_file()
    ]
    assert files
    assert all(token not in shown for shown in (text, output.out, output.err, *files))
