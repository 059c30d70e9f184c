"""Offsets of the source: their JSON, where a query and a batch begin and end, and what is out of reach."""

import json
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yt_exactly_once.errors import ConfigError, DataLossError, NewerFormatError
from yt_exactly_once.spark.query.offset_log import FORMAT, OFFSET_VERSION, QueueOffset
from yt_exactly_once.spark.source.offsets import (
    check_reachable,
    chosen_rows,
    end_within,
    shared_tasks,
)
from yt_exactly_once.spark.source.options import StartingPoint
from yt_exactly_once.ytsaurus.browsing import Cluster
from yt_exactly_once.ytsaurus.queues import PartitionBounds

QUEUE = "//home/app/queue"
CONSUMER = "//home/app/consumer"


def offset(partitions, start=None):
    started = partitions if start is None else start
    return QueueOffset("local", QUEUE, CONSUMER, partitions, started, "1-2-3-4", "1")


def bounds(*pairs):
    return [PartitionBounds(lower, upper) for lower, upper in pairs]


def test_offset_describes_itself_and_both_ends_of_its_batch():
    """The sink reads exactly these keys from Spark's log."""
    assert offset({1: 7, 0: 12}, start={0: 10, 1: 7}).to_json() == {
        FORMAT: OFFSET_VERSION,
        "cluster": "local",
        "queue": QUEUE,
        "queue_id": "1-2-3-4",
        "cluster_id": "1",
        "consumer": CONSUMER,
        "partitions": {"0": 12, "1": 7},
        "start": {"0": 10, "1": 7},
    }


def test_offset_survives_the_log():
    """What comes back from Spark's log is what went in."""
    written = replace(offset({0: 12, 10: 1, 2: 5}, start={0: 1, 2: 5, 10: 0}), shared=((0, 10),))
    assert QueueOffset.from_json(json.loads(json.dumps(written.to_json()))) == written


def test_offset_of_a_newer_version_is_refused_and_one_of_an_older_version_is_read():
    """An older program did not know tasks that share partitions, and repeated their rows."""
    newer = {FORMAT: OFFSET_VERSION + 1, "all else": "unknown"}
    with pytest.raises(NewerFormatError, match="An offset in the checkpoint has format version"):
        QueueOffset.from_json(newer)
    older = offset({0: 12}).to_json() | {FORMAT: OFFSET_VERSION - 1}
    assert QueueOffset.from_json(older) == offset({0: 12})


@pytest.mark.parametrize("key", sorted(offset({0: 12}).to_json().keys() - {FORMAT}))
def test_offset_of_an_unknown_older_version_is_named_so(key):
    """A new checkpoint, as for an offset of others, would repeat rows that tasks have pushed."""
    older = offset({0: 12}).to_json()
    del older[key]
    with pytest.raises(
        ConfigError, match=f"older format, 1 without {key}, .*the version that wrote"
    ):
        QueueOffset.from_json(older)


def test_equal_offsets_give_equal_text():
    """Spark compares offsets as text; another order of partitions would be a new batch."""
    one, other = offset({0: 1, 2: 3, 10: 4}), offset({10: 4, 2: 3, 0: 1})
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


@given(
    lengths=st.lists(st.integers(1, 12), max_size=12),
    max_rows=st.integers(0, 30),
    logged=st.lists(st.lists(st.integers(0, 14), min_size=1)),
)
def test_every_range_is_in_one_task_and_in_order(lengths, max_rows, logged):
    """Whatever shares a task, and whatever the log says that does."""
    batch = offset(dict(enumerate(lengths)), start={})
    shared = shared_tasks(batch.ranges(), max_rows)
    tasks = replace(batch, shared=shared).tasks()
    assert [wanted for task in tasks for wanted in task] == batch.ranges()
    assert (
        tuple(tuple(wanted.partition for wanted in task) for task in tasks if len(task) > 1)
        == shared
    )
    rows = [sum(wanted.end for wanted in task) for task in tasks]
    assert all(len(task) == 1 or total <= max_rows for task, total in zip(tasks, rows, strict=True))
    assert all(left + task[0].end > max_rows for left, task in zip(rows, tasks[1:], strict=False))
    odd = QueueOffset.from_json({**batch.to_json(), "shared": logged}).tasks()
    assert sorted(wanted for task in odd for wanted in task) == batch.ranges()


@pytest.mark.parametrize(
    "foreign", [{}, {"id": 3}, {"partitions": [1]}, {"cluster": None, "queue": 1}, {"shared": [0]}]
)
def test_offset_of_another_source_is_refused(foreign):
    """A checkpoint of another query must not be misread."""
    whole = offset({0: 12}).to_json() if "shared" in foreign else {}
    with pytest.raises(ConfigError, match="did not write"):
        QueueOffset.from_json(whole | foreign)


def test_advanced_offset_starts_where_the_last_one_ended():
    """A partition seen for the first time starts at 0."""
    new = offset({0: 5}, start={0: 2}).advanced({0: 9, 1: 4}, "1-2-3-4")
    assert new.start == {0: 5, 1: 0}
    assert new.ranges() == [(0, 5, 9), (1, 0, 4)]


def test_partition_without_rows_in_the_batch_has_no_range():
    """Such a partition costs no task."""
    assert offset({0: 5, 1: 8}, start={0: 5, 1: 7}).ranges() == [(1, 7, 8)]


@pytest.mark.parametrize(
    ("logged", "name"),
    [
        (("other", QUEUE, CONSUMER), "cluster"),
        (("local", "//home/app/other", CONSUMER), "queue"),
        (("local", QUEUE, None), "consumer"),
    ],
)
def test_checkpoint_of_another_source_is_refused(logged, name):
    """Row indexes of one queue mean nothing in another."""
    with pytest.raises(ConfigError, match=f"belongs to the {name}.*query's own.*section 'Another"):
        QueueOffset(*logged, {}, {}, "", "1").require_same_source(
            Cluster("local", "1"), QUEUE, CONSUMER
        )


def test_checkpoint_of_another_cluster_with_the_same_name_is_refused():
    """Its queue has other rows."""
    said = QueueOffset.from_json(offset({0: 5}).to_json())
    said.require_same_source(Cluster("local", "1"), QUEUE, CONSUMER)
    with pytest.raises(ConfigError, match="another cluster"):
        said.require_same_source(Cluster("local", "2"), QUEUE, CONSUMER)


@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        (StartingPoint.EARLIEST, {0: 2, 1: 0}),
        (StartingPoint.LATEST, {0: 9, 1: 4}),
        (StartingPoint.COMMITTED, {0: 5, 1: 0}),
        ({1: 4, 0: 3}, {0: 3, 1: 4}),
    ],
)
def test_every_kind_of_start_gives_a_row_for_every_partition(starting, expected):
    """The consumer stands at 5 in partition 0 and was never moved in partition 1."""
    assert chosen_rows(starting, bounds((2, 9), (0, 4)), {0: 5}, queue=QUEUE) == expected


@pytest.mark.parametrize(("stored", "first"), [({}, 7), ({0: 3}, 3)])
def test_trimmed_partition_begins_where_the_consumer_is_if_that_has_claimed_it(stored, first):
    """So that the loss is found; rows that were trimmed before a consumer existed are not its loss."""
    found = chosen_rows(StartingPoint.COMMITTED, bounds((7, 9)), stored, queue=QUEUE)
    assert found == {0: first}


@pytest.mark.parametrize("starting", [{0: 1}, {0: 1, 1: 1, 2: 1}, {1: 0, 2: 0}])
def test_explicit_start_must_name_every_partition(starting):
    """A forgotten partition would be read from a place nobody chose."""
    with pytest.raises(ConfigError, match=r"queue end at \{0: 5, 1: 5\}"):
        chosen_rows(starting, bounds((0, 5), (0, 5)), {}, queue=QUEUE)


def test_explicit_start_beyond_the_end_is_refused():
    """Rows that do not exist yet would be left out for ever."""
    with pytest.raises(ConfigError, match=r"is \{0: 5, 1: 6\}, .* end at \{0: 5, 1: 5\}"):
        chosen_rows({0: 5, 1: 6}, bounds((0, 5), (0, 5)), {}, queue=QUEUE)


@pytest.mark.parametrize(("there", "fails"), [([(5, 5), (0, 3)], True), ([(7, 9)], False)])
def test_rows_that_exist_or_may_be_missing_are_no_loss(there, fails):
    """Neither a fully read queue nor a new partition is one, nor trimmed rows where the option says so."""
    check_reachable(offset({0: 5}), bounds(*there), fail_on_data_loss=fails)


@pytest.mark.parametrize(
    ("read", "there", "told"),
    [
        ({0: 5}, [(7, 9)], r"Rows 5 to 6 of partition 0.*vital.*fail_on_data_loss"),
        ({0: 5}, [(0, 5), (3, 4)], "Rows 0 to 2 of partition 1"),
    ],
    ids=["trimmed", "trimmed in a partition that was added between two batches"],
)
def test_trimmed_rows_are_a_loss(read, there, told):
    """The error names the rows and both remedies."""
    with pytest.raises(DataLossError, match=told):
        check_reachable(offset(read), bounds(*there), fail_on_data_loss=True)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize(
    ("read", "there", "told"),
    [
        ({0: 5}, [(0, 3)], "row 5 of partition 0, which ends at 3"),
        ({0: 5, 1: 5}, [(0, 9)], "read 2 partitions, the queue now has 1"),
    ],
    ids=["ends before", "fewer partitions"],
)
def test_another_queue_is_a_loss_whatever_the_option_says(read, there, told, fail_on_data_loss):
    """Rows under the same numbers are others: joined partitions move them, too."""
    with pytest.raises(DataLossError, match=told):
        check_reachable(offset(read), bounds(*there), fail_on_data_loss=fail_on_data_loss)


class Rows:
    """Rows of given weights; counts how often it is asked."""

    def __init__(self, weights):
        self.cumulative = list(accumulate(weights))
        self.probes = 0

    def weight_until(self, row):
        self.probes += 1
        return self.cumulative[row]

    def between(self, first, last):
        """Weight of the rows after `first` up to `last`."""
        return self.cumulative[last] - self.cumulative[first]


def test_even_rows_are_found_in_a_few_probes():
    """A look at a queue of a million rows must stay cheap."""
    rows = Rows([100] * 1_000_000)
    end = end_within(rows.weight_until, 0, 1_000_000, 50_000)
    assert 470 <= end <= 501
    assert rows.probes <= 6


@given(
    weights=st.lists(st.integers(1, 10**6), min_size=1, max_size=300),
    limit=st.integers(1, 10**7),
    data=st.data(),
)
def test_limit_is_never_exceeded_and_progress_is_always_made(weights, limit, data):
    """Whatever the rows weigh: at least one row, and at most the limit beyond the first."""
    rows = Rows(weights)
    start = data.draw(st.integers(0, len(weights) - 1))
    end = end_within(rows.weight_until, start, len(weights), limit)
    assert start < end <= len(weights)
    assert rows.between(start, end - 1) <= limit


@pytest.mark.parametrize("heavy_at", [0, 1, 50, 98, 99])
def test_one_heavy_row_does_not_break_the_search(heavy_at):
    """Interpolation between uneven rows still ends."""
    weights = [1] * 100
    weights[heavy_at] = 10**9
    rows = Rows(weights)
    end = end_within(rows.weight_until, 0, 100, 1000)
    assert end == (100 if heavy_at == 0 else heavy_at)
    assert rows.probes <= 26
