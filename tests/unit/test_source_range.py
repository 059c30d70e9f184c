"""Reading a range: complete, in order, each row once, over short pulls, lag and trimmed rows."""

from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.notes import Told
from yt_exactly_once.commit.batch import PartitionRange
from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.errors import ClusterUnavailableError, DataLossError, RetriesExhaustedError
from yt_exactly_once.observability import Event
from yt_exactly_once.spark.source import range as source_range
from yt_exactly_once.spark.source.range import RangeReader
from yt_exactly_once.ytsaurus.queues import PartitionBounds, QueueState


class Rows(list):
    """Stands for a record batch: the row indexes themselves, and for a pull of one partition."""

    partition = 0

    def slice(self, start, length):
        return Rows(self[start : start + length])


class FakeQueue:
    """One partition whose pulls are scripted: each entry limits or replaces an answer."""

    path = "//home/app/queue"
    consumer = "//home/app/consumer"

    def __init__(self, upper, *, lower=0, script=(), partitions=1):
        self.lower, self.upper = lower, upper
        self.script = list(script)
        self.count = partitions
        self.asked = []

    def pull(self, partition, offset, max_rows, _max_bytes):
        self.asked.append((offset, max_rows))
        rows = Rows(self._rows(offset, max_rows))
        rows.partition = partition
        return rows

    def _rows(self, offset, max_rows):
        step = self.script.pop(0) if self.script else max_rows
        if isinstance(step, Exception):
            raise step
        if isinstance(step, list):
            return step
        first = max(offset, self.lower)
        return list(range(first, min(first + min(step, max_rows), self.upper)))

    def state(self, _expected):
        return QueueState("1-2-3-4", [PartitionBounds(self.lower, self.upper)] * self.count, [])


class AtOnce:
    """Runs a pull that is ahead when it begins, so that tests know what was asked."""

    def submit(self, pull, position):
        future = Future()
        try:
            future.set_result(pull(position))
        except Exception as error:  # noqa: BLE001 - kept for whoever asks
            future.set_exception(error)
        return future


def decoded(*pulls):
    """Return what `RowFormat.decode` does."""
    rows = Rows(row for pull in pulls for row in pull)
    return [pull.partition for pull in pulls for _ in pull], list(rows), rows


def reader(queue, **options):
    log = Told()
    waits = []
    options = {"policy": RetryPolicy(attempts=4), "pool": AtOnce} | options
    made = RangeReader(queue, decode=decoded, emit=log, sleep=waits.append, **options)
    return made, log, waits


def flat(pieces):
    return [row for piece in pieces for row in piece]


@pytest.mark.parametrize(
    ("script", "asked"), [([], [(10, 10)]), ([3, 1], [(10, 10), (13, 7), (14, 6)])]
)
def test_range_is_read_in_one_pull_unless_the_server_returns_fewer_rows(script, asked):
    """No row before, none after."""
    queue = FakeQueue(upper=100, script=script)
    assert flat(reader(queue)[0].read([PartitionRange(0, 10, 20)])) == list(range(10, 20))
    assert queue.asked == asked


def test_large_range_is_read_in_bounded_pieces(monkeypatch):
    """Memory must not grow with the range."""
    monkeypatch.setattr(source_range, "ROWS_PER_PULL", 7)
    pieces = list(reader(FakeQueue(upper=100))[0].read([PartitionRange(0, 0, 30)]))
    assert [len(piece) for piece in pieces] == [7, 7, 7, 7, 2]
    assert flat(pieces) == list(range(30))


def test_one_pull_is_ahead(monkeypatch):
    """And no more: Spark's pull drives ours, and memory stays bounded."""
    monkeypatch.setattr(source_range, "ROWS_PER_PULL", 7)
    queue = FakeQueue(upper=100)
    pieces = reader(queue)[0].read([PartitionRange(0, 0, 30)])
    for asked in ([0, 7], [0, 7, 14], [0, 7, 14, 21]):
        next(pieces)
        assert [offset for offset, _ in queue.asked] == asked


def test_pull_ahead_runs_while_rows_are_decoded(monkeypatch):
    """It begins before, as soon as an answer has shown how many rows come at once."""
    monkeypatch.setattr(source_range, "ROWS_PER_PULL", 7)
    queue, begun = FakeQueue(upper=100), []

    def decode(payload):
        begun.append(len(queue.asked))
        return decoded(payload)

    list(RangeReader(queue, decode, Told(), pool=AtOnce).read([PartitionRange(0, 0, 30)]))
    assert begun == [1, 3, 4, 5, 5]


def test_heavy_rows_are_not_pulled_twice(monkeypatch):
    """The cluster cuts such answers by weight; the next pull asks for as many rows."""
    monkeypatch.setattr(source_range, "BYTES_PER_PULL", 6)
    queue = FakeQueue(upper=100, script=[4, 4, 4, 4, 4])
    assert flat(reader(queue)[0].read([PartitionRange(0, 0, 20)])) == list(range(20))
    assert [offset for offset, _ in queue.asked] == [0, 4, 8, 12, 16]


def test_error_of_a_pull_ahead_is_met_where_its_rows_are_wanted():
    """And retried there."""
    queue = FakeQueue(upper=20, script=[4, ClusterUnavailableError("down")])
    made, log, _ = reader(queue)
    pieces = made.read([PartitionRange(0, 10, 20)])
    assert next(pieces) == [10, 11, 12, 13]
    assert log == []
    assert flat(pieces) == list(range(14, 20))
    assert [event for event, _ in log] == [Event.RETRY_SCHEDULED]


def short_ranges(count):
    return [
        PartitionRange(partition, 10 * partition, 10 * partition + 2) for partition in range(count)
    ]


SHORT = [10 * partition + row for partition in range(6) for row in range(2)]


def test_short_ranges_come_as_one_batch():
    """Each pull is decoded with the others, and Spark gets one batch of rows."""
    queue = FakeQueue(upper=100)
    assert list(reader(queue)[0].read(short_ranges(6))) == [SHORT]
    assert len(queue.asked) == 6


def test_heavy_short_ranges_come_in_more_batches(monkeypatch):
    """The answers that wait for each other are as heavy as one pull, and four are in flight."""
    monkeypatch.setattr(source_range, "BYTES_PER_PULL", 3)
    queue = FakeQueue(upper=100)
    pieces = reader(queue)[0].read(short_ranges(6))
    assert next(pieces) == SHORT[:4]
    assert len(queue.asked) == 5
    assert list(pieces) == [SHORT[4:8], SHORT[8:]]


@pytest.mark.parametrize(
    "trouble", [0, 1, [31], [30, 32], [30, 31, 32], ClusterUnavailableError("down")], ids=str
)
def test_short_ranges_with_a_gap_are_read_one_by_one(trouble):
    """Late rows, a failed pull and an answer beyond the range are treated as in a long range."""
    queue = FakeQueue(upper=100, partitions=6, script=[2, 2, 2, trouble, 2])
    made, log, _ = reader(queue)
    if trouble in ([31], [30, 32]):
        with pytest.raises(DataLossError, match=r"partition 3|Rows 30 to 30"):
            flat(made.read(short_ranges(6)))
        return
    assert flat(made.read(short_ranges(6))) == SHORT
    assert all(event is Event.RETRY_SCHEDULED for event, _ in log)


def test_rows_of_another_partition_are_not_taken_for_a_short_range():
    """Although the indexes of all answers together are those that are wanted."""
    queue = FakeQueue(upper=100, script=[[0], [1, 0, 1]])
    with pytest.raises(DataLossError, match="gaps or repeats"):
        flat(reader(queue)[0].read([PartitionRange(0, 0, 2), PartitionRange(1, 0, 2)]))


def test_answer_beyond_the_range_is_cut():
    """A later row belongs to the next batch."""
    queue = FakeQueue(upper=100, script=[[5, 6, 7, 8]])
    assert flat(reader(queue)[0].read([PartitionRange(0, 5, 7)])) == [5, 6]


def test_rows_that_are_late_are_waited_for():
    """Committed rows may become visible after their offsets."""
    queue = FakeQueue(upper=20, script=[4, 0, 0])
    made, log, waits = reader(queue)
    assert flat(made.read([PartitionRange(0, 10, 20)])) == list(range(10, 20))
    assert len(waits) == 2
    assert [event for event, _ in log] == [Event.RETRY_SCHEDULED] * 2


def test_rows_that_never_come_end_in_an_error():
    """The range is never silently shortened."""
    made, _, waits = reader(FakeQueue(upper=20, script=[0] * 4))
    with pytest.raises(RetriesExhaustedError, match=r"Rows 10 to 19.*not visible yet"):
        list(made.read([PartitionRange(0, 10, 20)]))
    assert len(waits) == 3


def test_cluster_that_comes_back_is_read_on():
    """An outage shorter than the patience costs a wait, no row and no repeat."""
    outage = ClusterUnavailableError("down")
    queue = FakeQueue(upper=20, script=[4, outage, outage])
    assert flat(reader(queue)[0].read([PartitionRange(0, 10, 20)])) == list(range(10, 20))


@pytest.mark.parametrize(("lower", "upper", "gone"), [(13, 20, 13), (30, 40, 20), (30, 30, 20)])
def test_trimmed_rows_are_a_loss_or_stepped_over_when_asked_to(lower, upper, gone):
    """The first ones of a range or all, whether rows follow it or not; they are named, or logged."""
    wanted = [PartitionRange(0, 10, 20)]
    with pytest.raises(DataLossError, match=f"Rows 10 to {gone - 1} of partition 0 were trimmed"):
        list(reader(FakeQueue(upper=upper, lower=lower))[0].read(wanted))
    made, log, _ = reader(FakeQueue(upper=upper, lower=lower), fail_on_data_loss=False)
    assert flat(made.read(wanted)) == list(range(gone, 20))
    ((event, fields),) = log
    assert event is Event.SOURCE_ROWS_SKIPPED
    assert (fields["start"], fields["end"], fields["rows"]) == (10, gone, gone - 10)


def test_rows_trimmed_while_reading_are_a_loss():
    """The trim may hit between two pulls of one range."""
    queue = FakeQueue(upper=20, script=[3, 2])
    pieces = reader(queue)[0].read([PartitionRange(0, 10, 20)])
    assert next(pieces) == [10, 11, 12]
    queue.lower = 17
    assert next(pieces) == [13, 14]
    with pytest.raises(DataLossError, match="Rows 15 to 16"):
        next(pieces)


@pytest.mark.parametrize("answer", [[10, 12], [10, 10, 11], [11, 10], [9, 10]])
@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_answer_with_gaps_or_repeats_is_refused(answer, fail_on_data_loss):
    """Only a prefix can have been trimmed; anything else is a broken answer."""
    made, _, _ = reader(FakeQueue(upper=20, script=[answer]), fail_on_data_loss=fail_on_data_loss)
    with pytest.raises(DataLossError, match="gaps or repeats"):
        list(made.read([PartitionRange(0, 10, 20)]))


@pytest.mark.parametrize("queue", [FakeQueue(upper=15), FakeQueue(upper=30, partitions=0)])
def test_queue_that_ends_before_the_range_is_another_queue(queue):
    """Waiting would not help: planned rows never existed in this queue."""
    queue.script = [0]
    made, _, waits = reader(queue)
    with pytest.raises(DataLossError, match="not the queue that was planned"):
        list(made.read([PartitionRange(0, 10, 20)]))
    assert waits == []


@given(
    lower=st.integers(0, 30),
    upper=st.integers(30, 60),
    start=st.integers(0, 29),
    length=st.integers(1, 31),
    script=st.lists(st.integers(0, 12), max_size=20),
)
def test_any_mix_of_short_pulls_and_lag_gives_every_row_once(lower, upper, start, length, script):
    """With loss allowed, the rows are exactly those of the range that were not trimmed."""
    end = min(start + length, upper)
    queue = FakeQueue(upper=upper, lower=lower, script=script)
    made, _, _ = reader(queue, fail_on_data_loss=False, policy=RetryPolicy(attempts=30))
    assert flat(made.read([PartitionRange(0, start, end)])) == list(range(max(start, lower), end))
