"""A complete result in the protocol: what is deleted is decided again in every attempt."""

from datetime import timedelta

import pyarrow as pa
import pytest

from yt_exactly_once.codec.rows import WireFormat, encode, row_fragments
from yt_exactly_once.codec.schema import TableSchema, check_frame
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.commit.complete import CompleteResult
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.commit.parts import TargetRows, whole
from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.errors import BatchTooLargeError, ConflictError

FRAME = pa.schema([("k", pa.int64()), ("v", pa.int64())])
PLAN = check_frame(
    FRAME,
    TableSchema.from_yt(
        [
            {"name": "k", "type_v3": "int64", "sort_order": "ascending"},
            {"name": "v", "type_v3": "int64"},
        ]
    ),
    target="//t",
    sorted=True,
)


def keys(*numbers):
    rows = pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())] * 2, schema=FRAME)
    return row_fragments(rows, PLAN.keys)


def result(*numbers, room=10):
    """The rows of a result, with the value 0 each."""
    rows = pa.RecordBatch.from_arrays(
        [pa.array(numbers, pa.int64()), pa.array([0] * len(numbers), pa.int64())], schema=FRAME
    )
    lanes = [[Payload(len(numbers), encode(rows, PLAN, WireFormat.YSON))]] if numbers else []
    complete = CompleteResult(PLAN.keys, keys(*numbers), room)
    return TargetRows("//t", lanes, "yson", len(numbers), complete=complete)


class Cluster:
    """A cluster that keeps the keys of one table, and refuses some commits.

    Attributes:
        refused: what others write before each of the first commits, which are then refused.
        log: what was asked inside the transaction that was committed.
    """

    def __init__(self, *numbers, refused=()):
        self.keys = set(keys(*numbers).to_pylist())
        self.refused = [set(keys(*others).to_pylist()) for others in refused]
        self.ledger = {}
        self.log = []

    def begin(self, _timeout, _lanes=1):
        return Transaction(self)

    def lookup(self, _path, _keys):
        return [self.ledger.get("row")]

    def unpin(self):
        pass


class Transaction:
    id = "1-2-3-4"

    def __init__(self, cluster):
        self.cluster, self.log, self.snapshot = cluster, [], sorted(cluster.keys)
        self.entry = None

    def lookup(self, _path, _keys):
        return [self.cluster.ledger.get("row")]

    def select(self, path, columns, *, limit):
        assert (path, columns) == ("//t", ("k",))
        self.log.append("select")
        return b"".join(self.snapshot[:limit])

    def side_by_side(self, calls):
        return [call(self) for call in calls]

    def write(self, _path, payloads, _wire, *, update=False, aggregate=False):
        assert not update
        assert not aggregate
        for payload in payloads:
            self.log.append(("delete" if payload.deletes else "write", payload))

    def insert(self, _path, rows):
        self.log.append("record")
        (self.entry,) = rows

    def commit(self, _written=()):
        if self.cluster.refused:
            self.cluster.keys |= self.cluster.refused.pop(0)
            raise ConflictError("another one was first")
        for kind, payload in (entry for entry in self.log if isinstance(entry, tuple)):
            fragments = {one + b"};" for one in payload.data.split(b"};")[:-1]}
            if kind == "delete":
                self.cluster.keys -= fragments
            else:
                self.cluster.keys |= {one[: one.index(b";") + 1] + b"};" for one in fragments}
        self.cluster.ledger["row"] = self.entry
        self.cluster.log = [step if isinstance(step, str) else step[0] for step in self.log]

    def abort(self):
        pass


def commit(cluster, rows):
    return BatchCommit(
        CommitLedger("//ledger", "q", ["//t"]),
        MicroBatch("q", 0, "r"),
        cluster,
        policy=RetryPolicy(attempts=3, first_wait=timedelta(0), max_wait=timedelta(0)),
        emit=lambda *_, **__: None,
        lanes=1,
        advance_consumer=True,
    ).commit(whole([rows]))


def test_rows_are_deleted_before_the_result_is_written():
    """Of what is done to one key in a transaction the last thing counts."""
    cluster = Cluster(1, 2, 3)
    assert commit(cluster, result(2, 4)).attempts == 1
    assert cluster.log == ["select", "delete", "write", "record"]
    assert cluster.keys == set(keys(2, 4).to_pylist())


def test_every_attempt_looks_again():
    """What came in between is deleted as well."""
    cluster = Cluster(1, refused=[[7], [8, 9]])
    assert commit(cluster, result(2)).attempts == 3
    assert cluster.keys == set(keys(2).to_pylist())


def test_empty_result_only_deletes():
    """And is recorded like any other."""
    cluster = Cluster(1, 2)
    commit(cluster, result())
    assert cluster.log == ["select", "delete", "record"]
    assert cluster.keys == set()


def test_nothing_is_sent_when_there_is_too_much_to_replace():
    """The attempt ends before it has written anything."""
    cluster = Cluster(*range(11))
    with pytest.raises(BatchTooLargeError):
        commit(cluster, result(100))
    assert len(cluster.keys) == 11
    assert cluster.ledger == {}
