"""Ranges of a batch from Spark's offset log, by its texts and by checkpoint files."""

import json
import pickle
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from yt_exactly_once.commit.batch import PartitionRange
from yt_exactly_once.errors import CheckpointError, ConfigError, NewerFormatError
from yt_exactly_once.spark.compat.checkpoint import CheckpointFiles
from yt_exactly_once.spark.compat.running import RunningQuery
from yt_exactly_once.spark.compat.spark_log import read_offsets, require_commit
from yt_exactly_once.spark.query.offset_log import (
    FORMAT,
    OFFSET_VERSION,
    QueueOffset,
    RunningBatch,
    identified,
    other_sources,
    source_ranges,
)


def offset(queue, ends, starts=None, queue_id="id", shared=()):
    start = dict(enumerate(starts or ends))
    ended = dict(enumerate(ends))
    written = QueueOffset("local", queue, f"{queue}_c", ended, start, queue_id, "1", shared)
    return json.dumps(written.to_json())


RANGES = {
    "the end of one batch is the start of the next": (
        offset("//q", [5, 9]), [offset("//q", [2, 9])], [(0, 2, 5), (1, 9, 9)],
    ),
    "Spark does not log where a query began": (offset("//q", [5], [3]), [], [(0, 3, 5)]),
    "the offset before counts rows of a queue that is gone": (
        offset("//q", [5], [2], "b"), [offset("//q", [90], [2], "a")], [(0, 2, 5)],
    ),
    "a queue that was resharded has new partitions": (
        offset("//q", [5, 4]), [offset("//q", [5])], [(0, 5, 5), (1, 0, 4)],
    ),
    "partitions are sorted as numbers": (
        offset("//q", range(12)), [], [(n, n, n) for n in range(12)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RANGES)
def test_ranges_of_a_batch_are_those_between_two_offsets(case):
    now, before, parts = RANGES[case]
    (found,) = source_ranges([now], before)
    named = ("local", "//q", "//q_c", json.loads(now)["queue_id"])
    assert (found.cluster, found.queue, found.consumer, found.queue_id) == named
    assert found.partitions == tuple(parts)


def test_batch_without_new_rows_does_not_move():
    """The start a resting offset carries is that of an earlier batch."""
    resting = offset("//q", [5], starts=[3])
    assert not source_ranges([resting], [resting])[0].moves


def test_two_queues_are_told_apart():
    """One query may read several queues, one of them resting."""
    now = [offset("//a", [5]), offset("//b", [7])]
    before = [offset("//a", [5]), offset("//b", [1])]
    assert [source.moves for source in source_ranges(now, before)] == [False, True]


@pytest.mark.parametrize(
    ("consumer", "how"), [("//q_c", "with the same consumer"), (None, "without a consumer")]
)
def test_one_queue_twice_with_one_consumer_or_none_is_an_error(consumer, how):
    """The two would move the same offsets, or be one in the ledger."""
    both = [
        json.dumps({**json.loads(offset("//q", [end])), "consumer": consumer}) for end in (5, 7)
    ]
    with pytest.raises(ConfigError, match=f"twice {how}"):
        source_ranges(both, [])


@pytest.mark.parametrize("text", ["17", '{"logOffset":3}', '{"topic":{"0":4}}', "not json"])
def test_other_sources_have_no_consumer(text):
    """Rate, file and Kafka offsets are left to the ledger."""
    assert source_ranges([text], []) == ()


def test_offset_of_a_newer_version_is_not_taken_for_one_of_another_source():
    """Then its consumer would stay, and its rows would be left to chance."""
    with pytest.raises(NewerFormatError):
        source_ranges([json.dumps({FORMAT: OFFSET_VERSION + 1})], [])


def test_other_sources_are_told_apart_by_both_ends():
    """They change with either end of the batch, and not with the spelling or the queues."""
    now, before = ['{"topic":{"0":9}}', offset("//q", [5])], ['{"topic":{"0":4}}']
    found = other_sources(now, before)
    assert (found.start, found.end) == (({"topic": {"0": 4}},), ({"topic": {"0": 9}},))
    assert other_sources([offset("//q", [7]), '{"topic": {"0": 9}}'], before) == found
    assert other_sources(now, ['{"topic":{"0":3}}']) != found
    assert other_sources(['{"topic":{"0":8}}'], before) != found
    assert not other_sources([offset("//q", [5])], [])


def test_batch_of_queues_alone_asks_for_no_other_sources():
    """Each call into the JVM costs time."""
    running = RunningBatch("q", "r", 3, SimpleNamespace(location="", query_name=""))
    of_queue = identified(running, [offset("//q", [5])], [], latest=lambda: pytest.fail("asked"))
    assert of_queue.others == ""
    latest = ['{"topic":{"0":12}}']
    of_topic = identified(running, ['{"topic":{"0":9}}'], [], latest=lambda: latest)
    assert json.loads(of_topic.others)["latest"] == [{"topic": {"0": 12}}]


QUEUE = offset("//q", [5], [3])
LOGGED = {
    "sources by place": (f'v1\n{{"batchTimestampMs": 7}}\n{QUEUE}\n-\n17', [QUEUE, "17"]),
    "sources by name": (f'v2\n{{"batchTimestampMs": 7}}\na:-\norders:{QUEUE}\n1:17', [QUEUE, "17"]),
    "an end of the last line": ('v1\n{"batchTimestampMs": 7}\n17\n', ["17"]),
    "no metadata, as the first versions of Spark": ("v1\n\n17", ["17"]),
    "what is a line end for Python alone": ('v1\n{}\n{"a":"\u2028\x85"}', ['{"a":"\u2028\x85"}']),
    "a source that was added, or no source": ("v2\n{}", []),
}


@pytest.mark.parametrize("case", LOGGED)
def test_offsets_are_read_as_spark_writes_them(case):
    """Sources by place, or by a name each; a source that has no offset yet is not there."""
    content, expected = LOGGED[case]
    found = read_offsets(4, content)
    assert (found.texts, found.logged_at) == (expected, 7 if "Timestamp" in content else 0)


@pytest.mark.parametrize(
    "content",
    ["", "v1", "v1\n", "x1\n{}", "v\n{}", "v0\n{}", "v1 \n{}", 'v1\n{"a', "v1\n[]", "v2\n{}\n17"],
)
def test_torn_file_of_spark_is_told_from_one_of_a_later_version(content):
    """A copy repairs the first, and a newer package reads the second."""
    with pytest.raises(
        CheckpointError, match=r"offsets/4 of the checkpoint is torn.*path=//c.*Restore"
    ):
        read_offsets(4, content, path="//c")
    with pytest.raises(NewerFormatError, match=r"offsets/4 .*version 3 .*reads 2.*not damaged"):
        read_offsets(4, "v3\nwhatever comes")


def test_commits_are_read_in_each_version_that_spark_has():
    """Version 2 has ids of state, and version 3 has names of sinks."""
    for content in ("v1\n{}", 'v2\n{"stateUniqueIds": {}}', 'v3\n{"sinkMetadataMap": {}}', "v1"):
        require_commit(4, content)
    for content in ("", "1\n{}", 'v2\n{"sta'):
        with pytest.raises(CheckpointError, match="commits/4 of the checkpoint is torn"):
            require_commit(4, content)
    with pytest.raises(NewerFormatError, match=r"commits/4 .*version 4 .*reads 3"):
        require_commit(4, "v4\n")


def test_batch_of_named_sources_is_that_of_the_same_sources_by_place(tmp_path):
    """Its ranges and its digest are, after a name or a place has changed, too."""
    both = [
        [offset("//q", [5], [3]), offset("//r", [2]), "17"],
        [offset("//q", [8]), "19", offset("//r", [9])],
    ]
    places, names = tmp_path / "places", tmp_path / "names"
    write_checkpoint(places, both)
    write_checkpoint(names, both, named=["orders", "1", "c-d_e"])
    read = [told(CheckpointFiles(str(root)), 1) for root in (places, names)]
    same = {"run_id": "", "checkpoint": ""}
    assert replace(read[0], **same) == replace(read[1], **same)
    assert [source.queue for source in read[1].sources if source.moves] == ["//q", "//r"]


def write_checkpoint(root, offsets, *, state=False, named=()):
    (root / "offsets").mkdir(parents=True)
    (root / "metadata").write_text('{"id":"the-query"}')
    for number, texts in enumerate(offsets):
        lines = (
            [f"{name}:{text}" for name, text in zip(named, texts, strict=True)] if named else texts
        )
        written = ["v2" if named else "v1", "{}", *lines]
        (root / "offsets" / str(number)).write_text("\n".join(written))
    if state:
        (root / "state").mkdir()


def told(log, number, frame=None):
    """Locate a batch and identify it."""
    running = log.locate(frame, number)
    return running.log.identify(running)


def test_checkpoint_files_tell_the_same_as_the_running_query(tmp_path):
    """Where there is no JVM, the files of the checkpoint say everything."""
    write_checkpoint(tmp_path, [[offset("//q", [5], [3])], [offset("//q", [8])]], state=True)
    batch = told(CheckpointFiles(str(tmp_path)), 1)
    assert (batch.query_id, batch.batch_id, batch.stateful) == ("the-query", 1, True)
    assert batch.sources[0].partitions == (PartitionRange(0, 5, 8),)
    first = told(CheckpointFiles(tmp_path.as_uri()), 0)
    assert first.sources[0].partitions == (PartitionRange(0, 3, 5),)
    assert not any((batch.shares_tasks, first.shares_tasks))


def test_batch_says_that_its_tasks_read_several_partitions(tmp_path):
    """As the offset of any of its queues says."""
    shared = offset("//r", [5, 3], shared=((0, 1),))
    write_checkpoint(tmp_path, [[offset("//q", [5]), shared]])
    assert told(CheckpointFiles(str(tmp_path)), 0).shares_tasks


def test_call_without_a_jvm_counts_as_made_on_the_thread_of_the_query(tmp_path):
    """No property of the thread says otherwise."""
    write_checkpoint(tmp_path, [[offset("//q", [5], [3])]])
    running = CheckpointFiles(str(tmp_path)).locate(None, 0)
    assert (running.in_background, running.problem) == (False, None)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    late = CheckpointFiles(str(tmp_path)).locate(None, 0)
    assert "logged batch 0 as done" in str(late.problem)


def test_run_without_a_jvm_is_the_one_that_the_session_has_of_the_query(tmp_path, monkeypatch):
    """All sinks of a run share it. A session without the query says that the checkpoint is another one's."""
    write_checkpoint(tmp_path, [[offset("//q", [5], [3])]])
    log = RunningQuery(CheckpointFiles(str(tmp_path)))
    frame = SimpleNamespace(sparkSession=SimpleNamespace())
    active = [SimpleNamespace(id="the-query", runId="run-1", name="orders")]
    session = SimpleNamespace(streams=SimpleNamespace(active=active))
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session)
    sinks = [pickle.loads(pickle.dumps(log)) for _ in range(2)]
    monkeypatch.undo()
    assert {told(sink, 0, frame).run_id for sink in sinks} == {"run-1"}
    active[:] = [SimpleNamespace(id="another", runId="run-2", name=None)]
    assert {told(sink, 0, frame).run_id for sink in sinks} == {"run-1"}
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session)
    with pytest.raises(ConfigError, match=r"of another query.*query=another"):
        told(pickle.loads(pickle.dumps(log)), 0, frame)


def test_ranges_of_earlier_batches_are_told_while_they_are_logged(tmp_path):
    """Spark forgets old batches, and then nothing is known of them."""
    write_checkpoint(tmp_path, [[offset("//q", [5], [3])], [offset("//q", [8])]])
    files = CheckpointFiles(str(tmp_path))
    batch = told(files, 1)
    assert files.ranges(1) == batch.sources
    assert files.ranges(0)[0].partitions == (PartitionRange(0, 3, 5),)
    (tmp_path / "offsets" / "0").unlink()
    assert files.ranges(0) == ()


def test_running_query_without_a_jvm_asks_the_files(tmp_path):
    """Also for earlier batches, and for what Spark has logged as done."""
    write_checkpoint(tmp_path, [[offset("//q", [5], [3])], [offset("//q", [8])]])
    frame = SimpleNamespace(sparkSession=SimpleNamespace())
    running = RunningQuery(CheckpointFiles(str(tmp_path))).locate(frame, 1)
    log, batch = running.log, running.log.identify(running)
    assert log.ranges(0)[0].partitions == (PartitionRange(0, 3, 5),)
    assert log.may_be_written(batch, is_unused=False)
    assert log.may_be_written(batch, is_unused=True)
    later = f'v1\n{{"batchTimestampMs": {int(time.time() * 1_000) + 1}}}'
    (tmp_path / "offsets" / "1").write_text(later)
    assert log.may_be_written(batch, is_unused=False)
    assert not log.may_be_written(batch, is_unused=True)
    assert not log.has_ended(running)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "1").touch()
    assert log.has_ended(running)


def test_checkpoint_without_the_batch_is_an_error(tmp_path):
    """The wrong folder is named, with what to pass instead."""
    write_checkpoint(tmp_path, [[offset("//q", [5])]])
    with pytest.raises(ConfigError, match="no batch 4"):
        told(CheckpointFiles(str(tmp_path)), 4)


def test_checkpoint_on_another_file_system_is_an_error():
    """Only what this process can read is promised."""
    with pytest.raises(ConfigError, match="dbfs"):
        CheckpointFiles("dbfs:/checkpoint")
