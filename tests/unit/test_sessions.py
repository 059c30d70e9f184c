"""Which sessions a batch was begun in, and which of them this sink can go on with."""

from types import SimpleNamespace
from unittest import mock

import pyarrow as pa
import pytest

from yt_exactly_once.codec.schema import SOURCE_COLUMNS, WritePlan
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.errors import (
    AccessError,
    ConfigError,
    NewerFormatError,
    NotOneToOneError,
    TableNotDynamicError,
    TableNotFoundError,
    TableNotMountedError,
)
from yt_exactly_once.spark.modes import MODES
from yt_exactly_once.spark.modes import sessions as modes_sessions
from yt_exactly_once.spark.modes.push import RehearsalTask
from yt_exactly_once.spark.modes.sessions import (
    POSITION_BITS,
    SESSION_VERSION,
    Numbering,
    gone_sessions,
    source_position,
)
from yt_exactly_once.ytsaurus import rows
from yt_exactly_once.ytsaurus.queues import PartitionBounds
from yt_exactly_once.ytsaurus.rows import SessionState
from yt_exactly_once.ytsaurus.tables import TableInfo

BATCH = MicroBatch("query", 7, "run", (SourceRange("cluster", "//queue", None, ()),))
TARGET = "//target"
SOURCE = source_position(SOURCE_COLUMNS, BATCH, None)
KAFKA = source_position((), BATCH, ("topic", "partition", "offset"))


def pushed(batch=7, **more):
    return SessionState.of(5, {"run": "old", "batch": batch, "task": 0, "digest": "0a"} | more)


def begun(sessions, *, columns=("id",), mode="idempotent", is_sorted=False):
    options = SimpleNamespace(producer="//producer", retry=RetryPolicy(), source_position=None)
    ordered = {} if is_sorted else {TARGET: columns}
    with mock.patch.object(modes_sessions, "sessions_of", return_value=sessions):
        return MODES[mode](options, None).begun_sessions(BATCH, ordered, None, arrived=False)


def test_sessions_with_rows_of_the_batch_are_found_by_their_short_names():
    """Those of other batches and targets are no matter."""
    sessions = {
        f"query:{TARGET}:partition-0": pushed(),
        f"query:{TARGET}:partition-1": pushed(batch=6),
        f"query:{TARGET}:partition-2": SessionState(-1),
        f"query:{TARGET}2:partition-0": pushed(),
    }
    assert begun(sessions) == {TARGET: {"partition-0": pushed()}}
    assert begun(sessions, is_sorted=True) == {}


@pytest.mark.parametrize(
    ("name", "columns", "mode"),
    [
        ("partition-0", ("id",), "transactional"),
        ("partition-0", SOURCE_COLUMNS, "idempotent"),
        ("source-a-0", ("id",), "idempotent"),
    ],
)
def test_rows_that_would_be_written_again_are_refused(name, columns, mode):
    """They are in sessions that this sink does not use."""
    with pytest.raises(ConfigError, match=r"would write them again.*as it was begun"):
        begun({f"query:{TARGET}:{name}": pushed()}, columns=columns, mode=mode)


@pytest.mark.parametrize("batch", [6, 7])
def test_session_of_a_newer_version_is_refused(batch):
    """Whether it has rows of this batch is unknown; a format before this one is read."""
    name = f"query:{TARGET}:partition-0"
    for known in (0, SESSION_VERSION):
        assert begun({name: pushed(format=known)})[TARGET].keys() == {"partition-0"}
    with pytest.raises(NewerFormatError, match="A producer session has format version"):
        begun({name: pushed(batch, format=SESSION_VERSION + 1)})


def info(*names, state="mounted"):
    return TableInfo("//p", "1-2", True, 1, state, [{"name": name} for name in names])


SESSION = ("session_id", "sequence_number", "user_meta")


@pytest.mark.parametrize(
    "there", [TableNotFoundError("none"), TableNotDynamicError("static"), info("id", "value")]
)
def test_what_is_no_producer_has_no_sessions(there):
    """The path is a default that nobody has chosen. Of an unmounted producer nobody knows."""
    with mock.patch.object(rows, "describe_table", side_effect=[there]):
        assert rows.sessions_of(None, "//p", "query:") == {}
    with (
        mock.patch.object(rows, "describe_table", return_value=info(*SESSION, state="unmounted")),
        pytest.raises(TableNotMountedError, match="yt mount-table //p --sync"),
    ):
        rows.sessions_of(None, "//p", "query:")


def numbered(*chunks, by_source):
    """Return what each chunk of Spark partition 4 becomes: sessions, homes, rows and numbers."""
    numbering = Numbering(BATCH, SOURCE if by_source else None, WritePlan(TARGET, ()))
    names = (*SOURCE_COLUMNS, "row")
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)], names
        )
        for rows in chunks
    ]
    return [
        [
            (part.session, part.home, part.rows.column(2).to_pylist(), part.numbers.tolist())
            for part in parts
        ]
        for parts in numbering.numbered(batches, 4)
    ]


FIRST = 7 << POSITION_BITS
"""Number of the first row of the batch that has no source: the batch is in the upper bits."""


@pytest.mark.parametrize(
    ("by_source", "expected"),
    [
        (True, [
            [("source-1", 1, [0, 2], [8, 9]), ("source-0", 0, [1], [5])],
            [("source-0", 0, [3], [6])],
        ]),
        (False, [
            [("partition-4", 4, [0, 1, 2], [FIRST, FIRST + 1, FIRST + 2])],
            [("partition-4", 4, [3], [FIRST + 3])],
        ]),
    ],
)  # fmt: skip
def test_rows_are_numbered_as_in_their_queue_or_by_their_position(by_source, expected):
    """With a session for each of its tablets, or one for the task, chunk after chunk."""
    chunks = [(1, 8, 0), (0, 5, 1), (1, 9, 2)], [(0, 6, 3)]
    assert numbered(*chunks, by_source=by_source) == expected


def test_rows_of_kafka_have_a_session_for_each_partition_of_a_topic():
    """Their order is kept, offsets may leave gaps, and no two partitions share a name."""
    rows = pa.RecordBatch.from_pydict(
        {
            "topic": ["a", "b", "a", "a-1", "a"],
            "partition": pa.array([1, 1, 1, 1, 0], pa.int32()),
            "offset": [5, 1, 9, 5, 3],
        }
    )
    (parts,) = Numbering(BATCH, KAFKA, WritePlan(TARGET, ())).numbered([rows], 4)
    found = {part.session: (part.home, part.numbers.tolist()) for part in parts}
    assert found == {
        'source-["a",1]': (1, [5, 9]),
        'source-["b",1]': (1, [1]),
        'source-["a-1",1]': (1, [5]),
        'source-["a",0]': (0, [3]),
    }


@pytest.mark.parametrize("name", ["topic", "partition", "offset"])
def test_a_row_without_a_position_is_refused(name):
    row = {"topic": "a", "partition": 0, "offset": 1} | {name: None}
    schema = pa.schema({"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()})
    rows = pa.RecordBatch.from_pylist([row], schema)
    with pytest.raises(NotOneToOneError, match=f"null in {name}"):
        list(Numbering(BATCH, KAFKA, WritePlan(TARGET, ())).numbered([rows], 4))


def replayed(*reports, by_source=True, gone=()):
    """Compare what tasks report with a session that has the digest 0a."""
    told = [
        pa.RecordBatch.from_pylist([{"session": name, "digest": digest, "partition": partition}])
        for partition, (name, digest) in enumerate(reports)
    ]
    numbering = Numbering(
        BATCH, SOURCE if by_source else None, WritePlan(TARGET, ()), frozenset(gone)
    )
    settings = SimpleNamespace(target=SimpleNamespace(path=TARGET))
    RehearsalTask(settings, numbering, {"partition-0": pushed()}).require_same_rows(told)


def test_a_replay_with_the_rows_of_the_session_continues():
    """Other sessions have no rows of the batch yet."""
    replayed(("partition-0", "0a"), ("partition-1", "0b"))


@pytest.mark.parametrize(
    ("reports", "why"),
    [
        ([], "no task of this replay gives them"),
        ([("partition-1", "0a")], "no task of this replay gives them"),
        ([("partition-0", "0b")], "gives other rows in their place"),
        ([("partition-0", "0a"), ("partition-0", "0a")], "in the Spark partitions 0 and 1"),
    ],
)
def test_a_replay_with_other_rows_than_the_session_is_refused(reports, why):
    """The session would drop what it takes for repeats."""
    for by_source in (True, False):
        with pytest.raises(NotOneToOneError, match=why) as caught:
            replayed(*reports, by_source=by_source)
        assert ("in as many Spark partitions" in str(caught.value)) is not by_source
        assert caught.value.where["session"] == "partition-0"


def test_a_replay_is_not_compared_with_rows_that_are_gone():
    """It gives the rest, or none; and never in two tasks."""
    gone = ["partition-0"]
    replayed(gone=gone)
    replayed(("partition-0", "0b"), gone=gone)
    with pytest.raises(NotOneToOneError):
        replayed(("partition-0", "0a"), ("partition-0", "0b"), gone=gone)


@pytest.mark.parametrize(
    ("lowers", "queue_id", "gone"),
    [
        ([5, 9], "id", set()),
        ([6, 9], "id", {"source-id-0"}),
        ([5, 9], "other", {"source-id-0", "source-id-1"}),
        ([5], "id", {"source-id-1"}),
    ],
    ids=["all there", "trimmed", "recreated", "a partition less"],
)
def test_sessions_whose_rows_the_queue_has_lost_are_known(monkeypatch, lowers, queue_id, gone):
    """Only of these a replay cannot give the rows."""
    queue = SimpleNamespace(
        state=lambda: SimpleNamespace(partitions=[PartitionBounds(one, 20) for one in lowers]),
        describe=lambda: SimpleNamespace(id=queue_id),
    )
    monkeypatch.setattr(modes_sessions, "RemoteQueue", lambda *_: queue)
    ranges = (PartitionRange(0, 5, 10), PartitionRange(1, 9, 12), PartitionRange(2, 0, 1))
    batch = MicroBatch("query", 7, "run", (SourceRange("c", "//q", None, ranges, "id"),))
    names = ["source-id-0", "source-id-1", "source-id-7"]
    position = source_position(SOURCE_COLUMNS, batch, None)
    assert gone_sessions(None, batch, position, names) == gone


def test_rows_of_a_queue_that_cannot_be_read_are_not_taken_for_gone(monkeypatch):
    """So they are compared."""

    def refuse():
        raise AccessError("no")

    monkeypatch.setattr(
        modes_sessions, "RemoteQueue", lambda *_: SimpleNamespace(state=refuse, describe=refuse)
    )
    source = SourceRange("c", "//q", None, (PartitionRange(0, 5, 10),), "id")
    batch = MicroBatch("query", 7, "run", (source,))
    position = source_position(SOURCE_COLUMNS, batch, None)
    assert gone_sessions(None, batch, position, ["source-id-0"]) == frozenset()
