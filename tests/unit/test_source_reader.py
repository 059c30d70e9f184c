"""The stream reader against a queue in memory: planning, limits, replay, reshard and commit."""

import json
import pickle
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import LongType, StructType
from structlog.testing import capture_logs

from yt_exactly_once import errors
from yt_exactly_once.config import Secret
from yt_exactly_once.observability import Event, channel, listen
from yt_exactly_once.spark.compat import versions
from yt_exactly_once.spark.data_source import YtDataSource
from yt_exactly_once.spark.source import planning
from yt_exactly_once.spark.source.opening import OpenedQueue
from yt_exactly_once.spark.source.options import SourceOptions, StartingPoint
from yt_exactly_once.spark.source.packed import PackedQueue
from yt_exactly_once.spark.source.planning import LOOK_INTERVAL, WEIGHT_INTERVAL
from yt_exactly_once.spark.source.reader import (
    IDLE_INTERVAL,
    QueueStreamReader,
    SelfLimitingReader,
    reader_of,
)
from yt_exactly_once.spark.source.rows import RowFormat
from yt_exactly_once.ytsaurus.browsing import Cluster
from yt_exactly_once.ytsaurus.queues import PartitionBounds, QueueState
from yt_exactly_once.ytsaurus.tables import TableInfo

LOCAL = Cluster("local", "1-2-3-4")

QUEUE = "//home/app/queue"
CONSUMER = "//home/app/consumer"
COLUMNS = StructType().add("id", LongType())


def table(schema=("id",), table_id="1-2-3-4"):
    columns = [{"name": name, "type": "int64"} for name in schema]
    return TableInfo(
        QUEUE, table_id, is_sorted=False, tablet_count=1, tablet_state="mounted", schema=columns
    )


ANOTHER = table(table_id="5-6-7-8")


class FakeQueue:
    """A queue and its consumer in memory."""

    path = QUEUE

    def __init__(self, *uppers, consumer=CONSUMER, stored=None):
        self.uppers = list(uppers)
        self.lowers = [0] * len(uppers)
        self.consumer = consumer
        self.stored = dict(stored or {})
        self.moves = []
        self.interference = []
        self.info = table()
        self.looks = 0

    def state(self, _expected):
        self.looks += 1
        bounds = [PartitionBounds(*pair) for pair in zip(self.lowers, self.uppers, strict=True)]
        return QueueState(self.info.id, bounds, self.info.schema)

    def stored_offsets(self, _cluster, _partitions):
        return dict(self.stored)

    def pull(self, _partition, offset, max_rows, _max_bytes):
        return list(range(offset, offset + max_rows))

    def advance(self, partition, old, new):
        if self.interference:
            self.stored[partition] = self.interference.pop(0)
        if self.stored.get(partition, 0) != old:
            raise errors.OffsetConflictError("moved")
        self.stored[partition] = new
        self.moves.append((partition, old, new))


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def reader(queue, clock=None, kind=QueueStreamReader, **options):
    """A reader of a query that is defined over the queue as it is now."""
    clock = clock or Clock()
    parsed = SourceOptions(
        path=QUEUE,
        consumer_path=queue.consumer,
        proxy="localhost:80",
        **({"starting_offsets": StartingPoint.COMMITTED} | options),
    )
    # Every row weighs 10, and takes one byte of a pull.
    rows = SimpleNamespace(
        spark_schema=COLUMNS,
        weight=lambda rows: (rows[0] + 1) * 10,
        decode=lambda rows: (None, rows, None),
        has_timestamps=False,
    )
    opened = OpenedQueue(parsed, queue, LOCAL, queue.info, rows)
    return kind(PackedQueue(opened), clock=clock, sleep=clock.sleep)


def ends(offset):
    return {int(key): value for key, value in offset["partitions"].items()}


def ranges(tasks):
    return [wanted for task in tasks for wanted in task.value]


def partitions(tasks):
    return [[wanted.partition for wanted in task.value] for task in tasks]


def everything(source, start):
    return source.latestOffset(start, ReadAllAvailable())


def planned(*args, **options):
    """Return a reader, where its query begins, and where the first batch ends."""
    source = reader(*args, **options)
    start = source.initialOffset()
    return source, start, everything(source, start)


def by_default(source, start):
    return source.latestOffset(start, source.getDefaultReadLimit())


def test_new_query_begins_where_the_consumer_is():
    """And takes what is there."""
    queue = FakeQueue(10, 5, stored={0: 4})
    source, start, end = planned(queue)
    assert ends(start) == {0: 4, 1: 0}
    assert ranges(source.partitions(start, end)) == [(0, 4, 10), (1, 0, 5)]


def test_first_offset_is_decided_once():
    """Spark asks again before each batch until there is one; rows in between must not be lost."""
    queue = FakeQueue(10)
    source = reader(queue, starting_offsets=StartingPoint.LATEST)
    start = source.initialOffset()
    queue.uppers = [12]
    assert source.initialOffset() == start
    assert ranges(source.partitions(start, everything(source, start))) == [(0, 10, 12)]


def test_replayed_first_batch_has_the_rows_it_had():
    """Its start is asked anew after a restart, when the consumer has already moved."""
    queue = FakeQueue(10, stored={0: 4})
    _, _, end = planned(queue)
    queue.stored = {0: 10}
    queue.uppers = [15]
    after = reader(queue)
    assert ranges(after.partitions(after.initialOffset(), end)) == [(0, 4, 10)]


def test_replayed_batch_is_planned_from_spark_offsets_alone():
    """Wherever the consumer is, and however far the queue has grown or was trimmed."""
    queue = FakeQueue(10)
    source, _, first = planned(queue)
    queue.uppers = [20]
    second = everything(source, first)
    queue.uppers, queue.lowers, queue.stored = [30], [20], {0: 3}
    assert ranges(reader(queue).partitions(first, second)) == [(0, 10, 20)]


def test_short_ranges_share_a_task():
    """Up to a number of rows together; a long range has a task of its own."""
    source, *ends = planned(FakeQueue(4, 3, 3, 30, 1, 0, 2), shared_task_rows=10)
    assert partitions(source.partitions(*ends)) == [[0, 1, 2], [3], [4, 6]]


def test_heavy_rows_do_not_share_a_task(monkeypatch):
    """A task that shares takes no more bytes than one pull."""
    monkeypatch.setattr(planning, "BYTES_PER_PULL", 7)
    source, *ends = planned(FakeQueue(4, 3, 3))
    assert partitions(source.partitions(*ends)) == [[0, 1], [2]]


def test_rows_of_unknown_weight_do_not_share_a_task():
    """A queue that does not answer costs the batch nothing but that."""
    queue = FakeQueue(4, 3)
    queue.pull = Mock(side_effect=errors.ClusterUnavailableError("down"))
    source, *ends = planned(queue)
    assert partitions(source.partitions(*ends)) == [[0], [1]]


def test_weight_of_rows_is_looked_at_now_and_then():
    """Each look is a request."""
    queue, clock = FakeQueue(4, 3), Clock()
    queue.pull = Mock(side_effect=queue.pull)
    source = reader(queue, clock)
    end = source.initialOffset()
    for batch in range(3):
        queue.uppers = [upper + 1 for upper in queue.uppers]
        end = everything(source, end)
        assert queue.pull.call_count == 1 + batch // 2
        clock.sleep(WEIGHT_INTERVAL / 2)


def test_replay_has_the_tasks_it_had():
    """By position, idempotent mode numbers rows by them; options and weights may have changed since."""
    queue = FakeQueue(4, 3, 3)
    _, start, end = planned(queue, shared_task_rows=7)
    end = json.loads(json.dumps(end))
    for rows in (7, 1, 1000):
        after = reader(queue, shared_task_rows=rows)
        assert partitions(after.partitions(start, end)) == [[0, 1], [2]]


def test_offset_of_a_version_without_shared_tasks_has_a_task_for_each_partition():
    """So that an upgrade in the middle of a batch changes no task."""
    queue = FakeQueue(4, 3)
    source, start, end = planned(queue)
    assert end.pop("shared") == [[0, 1]]
    assert partitions(source.partitions(start, end)) == [[0], [1]]


@pytest.mark.parametrize("uppers", [(10,), (0, 0)])
def test_offset_that_does_not_move_is_returned_as_it_is(uppers):
    """Spark compares text; any difference would be an empty batch, also of an empty queue."""
    source, start, end = planned(FakeQueue(*uppers))
    assert (end is start) == (not any(uppers))
    assert everything(source, end) is end
    assert source.partitions(end, end) == []


ROWS_LIMIT, BYTES_LIMIT = "max_rows_per_partition", "max_bytes_per_partition"


@pytest.mark.parametrize(
    ("limits", "asked", "taken"),
    [
        ({}, ReadAllAvailable(), 100),
        ({ROWS_LIMIT: 10}, ReadMaxRows(10), 10),
        ({BYTES_LIMIT: 100}, ReadMaxBytes(100), 11),
        ({ROWS_LIMIT: 50, BYTES_LIMIT: 100}, ReadMaxRows(50), 11),
        ({ROWS_LIMIT: 5, BYTES_LIMIT: 100}, ReadMaxRows(5), 5),
    ],
)
def test_each_partition_is_limited_unless_spark_lifts_the_limit(limits, asked, taken):
    """By rows, by bytes, of which the first row's do not count, or by both; `Trigger.Once` lifts it."""
    source = reader(FakeQueue(100, 3), **limits)
    start = source.initialOffset()
    assert source.getDefaultReadLimit() == asked
    assert ends(by_default(source, start)) == {0: taken, 1: 3}
    assert ends(everything(source, start)) == {0: 100, 1: 3}


def test_reader_limits_itself_where_spark_does_not():
    """Without admission control it continues where the last planned batch ended."""
    source = reader(FakeQueue(25), kind=SelfLimitingReader, max_rows_per_partition=10)
    start = source.initialOffset()
    planned = []
    for _ in range(4):
        end = source.latestOffset()
        planned.append(ranges(source.partitions(start, end)))
        start = end
    assert planned == [[(0, 0, 10)], [(0, 10, 20)], [(0, 20, 25)], []]


def test_reader_that_limits_itself_warns_once_of_rows_that_it_leaves():
    """It cannot know the trigger; a batch that takes all leaves none."""
    with capture_logs() as logs:
        for rows in (25, 10):
            source = reader(FakeQueue(rows), kind=SelfLimitingReader, max_rows_per_partition=10)
            source.partitions(source.initialOffset(), source.latestOffset())
            source.latestOffset()
    (told,) = [log for log in logs if log["event"] == Event.SOURCE_RUN_LIMITED]
    assert (told["log_level"], told["rows_left"]) == ("warning", 15)


def test_reader_that_limits_itself_continues_at_the_offset_that_spark_hands_over():
    """After a restart Spark plans the newest logged offset; wherever the consumer is."""
    queue = FakeQueue(25, stored={0: 3})
    before = reader(queue, kind=SelfLimitingReader, max_rows_per_partition=10)
    logged = before.latestOffset()
    queue.stored = {0: 25}
    after = reader(queue, kind=SelfLimitingReader, max_rows_per_partition=10)
    assert after.partitions(logged, logged) == []
    assert ranges(after.partitions(logged, after.latestOffset())) == [(0, 13, 23)]


def test_available_now_stops_where_the_queue_ended_at_the_start():
    """In several batches, and without what is written meanwhile."""
    queue = FakeQueue(25, 3)
    source = reader(queue, max_rows_per_partition=10)
    source.prepareForTriggerAvailableNow()
    queue.uppers, queue.lowers = [40, 9, 7], [0, 0, 0]
    offset, seen = source.initialOffset(), []
    while (end := by_default(source, offset)) is not offset:
        seen.append(ends(end))
        offset = end
    assert seen == [{0: 10, 1: 3, 2: 0}, {0: 20, 1: 3, 2: 0}, {0: 25, 1: 3, 2: 0}]


@pytest.mark.parametrize(
    ("starting", "moves"),
    [(StartingPoint.COMMITTED, [(0, 2, 10)]), (StartingPoint.LATEST, [])],
    ids=["rows", "no rows"],
)
def test_available_now_moves_the_consumer_to_its_end_if_there_were_rows(starting, moves):
    """Spark never reports the last batch of such a run as committed."""
    queue = FakeQueue(10, stored={0: 2})
    source = reader(queue, starting_offsets=starting)
    source.prepareForTriggerAvailableNow()
    end = everything(source, source.initialOffset())
    assert queue.moves == []
    everything(source, end)
    assert queue.moves == moves


def test_new_partitions_are_picked_up_from_their_first_row():
    """A reshard that adds partitions needs no restart; an empty one is named with the next rows."""
    queue = FakeQueue(10)
    source, _, first = planned(queue)
    queue.uppers, queue.lowers = [10, 0], [0, 0]
    assert everything(source, first) is first
    queue.uppers = [12, 4]
    second = everything(source, first)
    assert ranges(source.partitions(first, second)) == [(0, 10, 12), (1, 0, 4)]


@pytest.mark.parametrize(
    ("uppers", "lowers", "told"),
    [([30], [0], "queue now has 1"), ([30, 30], [12, 0], "Rows 10 to 11")],
    ids=["fewer partitions", "trimmed rows"],
)
def test_rows_that_are_gone_stop_the_query(uppers, lowers, told):
    """Before a batch with a hole is written to Spark's log."""
    queue = FakeQueue(10, 10)
    source, _, first = planned(queue)
    queue.uppers, queue.lowers = uppers, lowers
    with pytest.raises(errors.DataLossError, match=told):
        everything(source, first)


def test_trimmed_rows_do_not_count_against_the_limit():
    """A long trimmed stretch is stepped over in one batch, not in many empty ones."""
    queue = FakeQueue(10)
    source, _, first = planned(queue, max_rows_per_partition=5, fail_on_data_loss=False)
    queue.uppers, queue.lowers = [2000], [1000]
    assert ends(by_default(source, first)) == {0: 1005}


def test_checkpoint_of_another_queue_is_refused():
    """On both ways an offset comes in."""
    source = reader(FakeQueue(10))
    foreign = source.initialOffset() | {"queue": "//home/app/other"}
    for call in (lambda: everything(source, foreign), lambda: source.partitions({}, foreign)):
        with pytest.raises(errors.ConfigError, match="belongs to the queue //home/app/other"):
            call()


@pytest.mark.parametrize(
    ("schema", "change"), [(("name",), "id was removed, name was added"), ((), "id was removed")]
)
def test_schema_that_changes_under_the_query_is_an_error(schema, change):
    """Rows would be read with columns the plan does not have."""
    queue, clock = FakeQueue(10), Clock()
    source, start, end = planned(queue, clock)
    queue.info = table(schema)
    clock.sleep(LOOK_INTERVAL)
    with pytest.raises(errors.SchemaMismatchError, match=rf"{change}.*Load the queue again"):
        source.partitions(start, end)


def test_columns_that_the_queue_gets_are_left_out_and_named_once():
    """The next start of the query reads them."""
    queue, clock = FakeQueue(10), Clock()
    source, start, end = planned(queue, clock)
    queue.info = table(("id", "name"))
    with capture_logs() as logs:
        for _ in range(2):
            clock.sleep(LOOK_INTERVAL)
            assert source.partitions(start, end)
    left_out = [line for line in logs if line["event"] == Event.SOURCE_COLUMNS_LEFT_OUT]
    assert [line["columns"] for line in left_out] == [["name"]]


def test_batch_that_was_just_planned_costs_one_look():
    """Its columns and its bounds come with one request; a replay is looked at too."""
    queue = FakeQueue(10)
    source = reader(queue)
    start = source.initialOffset()
    queue.looks = 0
    end = everything(source, start)
    source.partitions(start, end)
    assert queue.looks == 1
    after = reader(queue)
    queue.info = table(())
    with pytest.raises(errors.SchemaMismatchError):
        after.partitions(start, end)


def test_recreated_queue_under_the_query_is_a_loss():
    """Even when it has more rows than the old one."""
    queue, clock = FakeQueue(10), Clock()
    source, start, end = planned(queue, clock)
    queue.info = ANOTHER
    clock.sleep(LOOK_INTERVAL)
    for call in (lambda: source.partitions(start, end), lambda: everything(source, end)):
        with pytest.raises(errors.DataLossError, match="recreated"):
            call()


def read_before(queue):
    """Return the last offset of an earlier run, the consumer standing at its end."""
    source, _, end = planned(queue)
    source.commit(end)
    return end


def test_recreated_queue_between_two_runs_is_a_loss():
    """Although it has grown beyond the offset, and its rows could be read."""
    queue = FakeQueue(10)
    end = read_before(queue)
    queue.info, queue.uppers = ANOTHER, [30]
    told = r"recreated.*Set fail_on_data_loss to false.*Leave the consumer.*repair TARGET --new-checkpoint"
    with pytest.raises(errors.DataLossError, match=told):
        everything(reader(queue), end)


def test_recreated_queue_is_read_from_its_beginning_when_asked_to():
    """The operator hears of it. The consumer goes back too: a vital one would let unread rows be trimmed."""
    queue = FakeQueue(10, 4)
    end = read_before(queue)
    old, queue.info, queue.uppers, queue.lowers = queue.info.id, ANOTHER, [30], [3]
    source = reader(queue, fail_on_data_loss=False)
    with capture_logs() as logs:
        new = everything(source, end)
    (told,) = [log for log in logs if log["event"] == Event.SOURCE_QUEUE_REPLACED]
    assert (told["queue"], told["old_id"], told["new_id"]) == (QUEUE, old, ANOTHER.id)
    assert (told["left"], told["begins"]) == ({0: 10, 1: 4}, {0: 3})
    assert ranges(source.partitions(end, new)) == [(0, 3, 30)]
    assert new["queue_id"] == ANOTHER.id
    assert queue.stored == {0: 3, 1: 4}
    source.commit(end)
    assert queue.stored[0] == 3
    source.commit(new)
    assert queue.stored[0] == 30


def test_recreated_queue_and_empty_makes_no_batch():
    """The old offset stays until there are rows."""
    queue = FakeQueue(10)
    end = read_before(queue)
    queue.info, queue.uppers = ANOTHER, [0]
    assert everything(reader(queue, fail_on_data_loss=False), end) is end
    assert queue.stored == {0: 10}


def test_replayed_batch_of_a_removed_queue_is_a_loss():
    """Its rows are gone; with losses allowed it is an empty batch."""
    queue = FakeQueue(10)
    end = read_before(queue)
    queue.info = ANOTHER
    with pytest.raises(errors.DataLossError, match="recreated"):
        reader(queue).partitions({}, end)
    assert reader(queue, fail_on_data_loss=False).partitions({}, end) == []


@pytest.mark.parametrize(
    ("stored", "others", "moves"),
    [
        ({0: 4}, [], [(0, 4, 10), (1, 0, 5)]),
        ({0: 10, 1: 7}, [], []),
        ({}, [12], [(1, 0, 5)]),
        ({}, [3], [(0, 3, 10), (1, 0, 5)]),
    ],
    ids=["behind", "there or ahead", "moved further meanwhile", "moved less far meanwhile"],
)
def test_commit_moves_a_consumer_that_is_behind(stored, others, moves):
    """From where it stands, in every partition; the sink may have moved it, or somebody else just now."""
    queue = FakeQueue(10, 5)
    source, _, end = planned(queue)
    queue.stored, queue.interference = stored, others
    source.commit(end)
    assert queue.moves == moves


def test_busy_query_looks_at_its_consumer_once_a_second():
    """And when it has read everything, so that nothing stays behind."""
    queue, clock = FakeQueue(10), Clock()
    source = reader(queue, clock)
    end = source.initialOffset()
    for upper, second in ((10, 0.0), (20, 0.4), (30, 0.9), (40, 1.0), (50, 1.5)):
        queue.uppers, clock.now = [upper], 100.0 + second
        end = everything(source, end)
        source.commit(end)
    assert queue.moves == [(0, 0, 10), (0, 10, 40)]
    assert everything(source, end) is end
    assert queue.moves == [(0, 0, 10), (0, 10, 40), (0, 40, 50)]


def test_idle_query_moves_its_consumer_before_spark_reports_the_batch():
    """That comes with the next batch, when nothing is left to do."""
    queue = FakeQueue(10)
    source, _, end = planned(queue)
    looks = []
    queue.stored_offsets = lambda *_: looks.append(1) or dict(queue.stored)
    for _ in range(2):
        assert everything(source, end) is end
        assert queue.moves == [(0, 0, 10)]
    source.commit(end)
    assert looks == [1]


def test_idle_reader_that_limits_itself_moves_its_consumer():
    """Where Spark gives no position, the batch that was planned last is the one that has ended."""
    queue = FakeQueue(10)
    source = reader(queue, kind=SelfLimitingReader)
    source.latestOffset()
    assert queue.moves == []
    end = source.latestOffset()
    source.partitions(source.initialOffset(), end)
    assert source.latestOffset() == end
    assert queue.moves == [(0, 0, 10)]


def test_consumer_that_the_sink_moves_is_looked_at_less_and_less():
    """Half a minute apart in the end, so that small batches do not pay for it."""
    queue, clock = FakeQueue(10), Clock()
    source = reader(queue, clock)
    end, looks = source.initialOffset(), []
    queue.stored_offsets = lambda *_: looks.append(clock.now - 100) or dict(queue.stored)
    for second in range(130):
        clock.now, queue.uppers = 100.0 + second, [10 * (second + 1)]
        end = everything(source, end)
        queue.stored = {0: end["partitions"]["0"]}
        source.commit(end)
        assert everything(source, end) is end
    assert looks == [0, 1, 3, 7, 15, 31, 61, 91, 121]
    assert queue.moves == []


def test_consumer_that_the_sink_leaves_is_looked_at_often_again():
    """From the next look on, and whenever everything was read."""
    queue, clock = FakeQueue(10), Clock()
    source = reader(queue, clock)
    end = source.initialOffset()
    for upper, second in ((10, 0.0), (20, 1.0)):
        queue.uppers, clock.now, queue.stored = [upper], 100.0 + second, {0: upper}
        end = everything(source, end)
        source.commit(end)
    for upper, second in ((30, 2.0), (40, 3.0), (50, 3.5)):
        queue.uppers, clock.now = [upper], 100.0 + second
        end = everything(source, end)
        source.commit(end)
        assert everything(source, end) is end
    assert queue.moves == [(0, 20, 40), (0, 40, 50)]


def test_consumer_is_moved_in_a_run_whatever_the_run_before_has_left():
    """Spark first reports the last batch of the run before, whose end the consumer already has."""
    queue, clock = FakeQueue(10), Clock()
    _, _, end = planned(queue, clock)
    queue.uppers, queue.stored = [20], {0: 10}
    source = reader(queue, clock)
    last = everything(source, end)
    source.commit(end)
    assert queue.moves == []
    assert everything(source, last) is last
    assert queue.moves == [(0, 10, 20)]


def test_commit_that_is_always_disturbed_is_an_error():
    """Two queries fight over one consumer."""
    queue = FakeQueue(1000)
    source, _, end = planned(queue)
    queue.interference = [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(errors.OffsetConflictError):
        source.commit(end)


def test_commit_without_a_consumer_does_nothing():
    """There is nothing to move."""
    queue = FakeQueue(10, consumer=None)
    source, _, end = planned(queue, starting_offsets=StartingPoint.EARLIEST)
    source.commit(end)
    assert queue.moves == []


def test_progress_shows_where_the_queue_ends():
    """From the last look: reporting costs no request."""
    queue = FakeQueue(100, 3)
    source = reader(queue, max_rows_per_partition=10)
    assert source.reportLatestOffset() is None
    by_default(source, source.initialOffset())
    looks = queue.looks
    assert ends(source.reportLatestOffset()) == {0: 100, 1: 3}
    assert queue.looks == looks


def test_progress_shows_how_many_rows_are_after_the_batch():
    """In total, and of the partition with the most; trimmed rows do not count."""
    queue = FakeQueue(100, 3, 50)
    source = reader(queue, max_rows_per_partition=10)
    start = source.initialOffset()
    queue.lowers[2] = 20
    by_default(source, start | {"partitions": {"0": 0, "1": 0, "2": 20}})
    assert source.reportLatestOffset()["behind"] == {"rows": 110, "max": 90, "avg": 36.7}


@pytest.fixture
def looks(monkeypatch):
    """What the source says about each look, to a driver that listens; every row is 60 s old."""
    monkeypatch.setenv(channel.ADDRESS_VARIABLE, "127.0.0.1 9 key")
    monkeypatch.setattr(time, "time", lambda: 1_060.0)
    heard = []
    end = listen(lambda event, told: heard.append(told) if event == Event.SOURCE_LOOKED else None)
    yield heard
    end()


def aged(queue, clock=None, **options):
    """A reader of a queue with timestamps; row 13 has none."""
    source = reader(queue, clock, **options)
    source._queue.opened.rows.has_timestamps = True
    source._queue.opened.rows.committed_at = lambda rows: None if rows[0] == 13 else 1_000.0
    return source


def test_every_batch_says_how_far_the_query_is_behind(looks):
    """The age is that of the first row after the batch, and it is looked up once in ten seconds."""
    queue, clock = FakeQueue(25, 3), Clock()
    pulls, pull = [], queue.pull
    queue.pull = lambda *asked: pulls.append(asked[:2]) or pull(*asked)
    source = aged(queue, clock, max_rows_per_partition=10, shared_task_rows=1)
    start = source.initialOffset()
    for _ in range(3):
        start = by_default(source, start)
    told = [(one["rows"], one["rows_behind"], one["seconds_behind"]) for one in looks]
    assert told == [(13, 15, 60.0), (10, 5, 60.0), (5, 0, 0.0)]
    assert pulls == [(0, 10)]
    assert looks[0]["consumer"] == CONSUMER


def test_idle_source_says_so_now_and_then(looks):
    queue, clock = FakeQueue(10), Clock()
    source = aged(queue, clock)
    offset = everything(source, source.initialOffset())
    for _ in range(200):
        everything(source, offset)
    assert clock.now > 119
    assert [one["rows"] for one in looks] == [10, 0, 0, 0]


def test_age_that_cannot_be_had_delays_nothing(looks):
    """A queue without timestamps, a cluster that does not answer, a row without one, nobody who listens."""
    plain = aged(FakeQueue(20), max_rows_per_partition=10)
    plain._queue.opened.rows.has_timestamps = False
    away = FakeQueue(20)
    away.pull = lambda *_: (_ for _ in ()).throw(errors.ClusterUnavailableError("away"))
    for source in (
        plain,
        aged(away, max_rows_per_partition=10),
        aged(FakeQueue(20), max_rows_per_partition=13),
    ):
        by_default(source, source.initialOffset())
    assert [one["seconds_behind"] for one in looks] == [None] * 3


def test_idle_queue_is_not_hammered():
    """Spark asks every 10 ms; the cluster is asked less often, and each answer is fresh."""
    queue, clock = FakeQueue(10), Clock()
    source, _, offset = planned(queue, clock)
    assert clock.slept == []
    everything(source, offset)
    assert clock.slept == []
    everything(source, offset)
    assert clock.slept == [pytest.approx(IDLE_INTERVAL)]
    queue.uppers = [12]
    offset = everything(source, offset)
    assert ends(offset) == {0: 12}
    everything(source, offset)
    assert len(clock.slept) == 2


def test_reader_travels_to_tasks():
    """Spark pickles it with everything it needs, the token included but never shown."""
    options = SourceOptions(
        path=QUEUE,
        consumer_path=CONSUMER,
        proxy="localhost:80",
        token=Secret("secret-token"),
        starting_offsets=StartingPoint.EARLIEST,
    )
    rows = SimpleNamespace(spark_schema=COLUMNS)
    source = reader_of(
        PackedQueue(OpenedQueue(options, FakeQueue(10), LOCAL, table(), rows)), COLUMNS, {}
    )
    assert b"secret-token" in pickle.dumps(source)
    # Spark pickles it twice: the process that passes it on does not look inside.
    there = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(source))))
    assert "secret-token" not in repr(vars(there))
    assert ends(everything(there, there.initialOffset())) == {0: 10}


def test_reader_is_passed_on_without_the_client():
    """Spark starts a process for that alone; with the imports of reading it would take twice as long."""
    code = (
        "import pickle, sys\n"
        "source = pickle.loads(sys.stdin.buffer.read())\n"
        "pickle.dumps(source.streamReader(source.schema()))\n"
        "assert not {'yt', 'pyarrow', 'yt_exactly_once.codec'} & set(sys.modules)\n"
    )
    columns = [{"name": "id", "type": "int64"}]
    options = SourceOptions.parse({"path": QUEUE, "proxy": "localhost:80"})
    source = YtDataSource({})
    source._packed = PackedQueue(
        OpenedQueue(options, FakeQueue(10), LOCAL, table(), RowFormat(columns, options))
    )
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(source), check=True)


def packed():
    options = SourceOptions.parse({"path": QUEUE, "proxy": "localhost:80"})
    return PackedQueue(
        OpenedQueue(options, None, LOCAL, None, SimpleNamespace(spark_schema=COLUMNS))
    )


@pytest.mark.parametrize(
    ("has_admission_control", "kind"), [(True, QueueStreamReader), (False, SelfLimitingReader)]
)
def test_reader_is_of_the_kind_that_spark_asks(monkeypatch, has_admission_control, kind):
    """Older versions do not ask for a limit."""
    monkeypatch.setattr(versions, "HAS_ADMISSION_CONTROL", has_admission_control)
    assert type(reader_of(packed(), COLUMNS, {})) is kind


def test_schema_of_the_users_own_is_refused():
    """It could only rename or retype silently."""
    with pytest.raises(errors.SchemaMismatchError, match="Leave"):
        reader_of(packed(), StructType().add("other", LongType()), {})
