"""Steps 4 to 9 of the protocol, request by request and event by event."""

from collections import deque
from concurrent.futures import Executor, Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial

import pyarrow as pa
import pytest

from tests.notes import Told
from yt_exactly_once.codec.rows import row_fragments
from yt_exactly_once.codec.schema import TableSchema, check_frame
from yt_exactly_once.commit import claims, transactional
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.commit.cluster import OpenTransaction, Payload
from yt_exactly_once.commit.consumers import offsets_of
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.commit.parts import TargetRows, digest_of, split, whole
from yt_exactly_once.commit.tally import RowDigest, SentBy, Tally
from yt_exactly_once.commit.transactional import BatchCommit, Committed
from yt_exactly_once.config import LEASE, PLAIN_WRITE, RetryPolicy, WriteOptions
from yt_exactly_once.errors import (
    AccessError,
    BatchTooLargeError,
    ClusterUnavailableError,
    CommitOutcomeUnknownError,
    ConflictError,
    ExactlyOnceError,
    FencedError,
    LedgerDivergedError,
    OffsetConflictError,
    RepeatedCallError,
    RequestRefusedError,
    RetriesExhaustedError,
    TransactionLostError,
)
from yt_exactly_once.observability import Event
from yt_exactly_once.spark.sink.complete import CompleteResult
from yt_exactly_once.ytsaurus.transaction import TransactionAhead

QUEUE = SourceRange(
    "local", "//q", "//c", (PartitionRange(0, 10, 15), PartitionRange(1, 4, 4)), "id"
)
ROWS = TargetRows("//t", [[Payload(2, b"ab")], [Payload(1, b"c")]], "yson", 3)


def batch(*sources, number=5, run="run", stateful=False, others=""):
    return MicroBatch("query", number, run, sources or (QUEUE,), stateful, "append", others)


def entry_of(of, transaction="before", *, run="run", part=1, count=1, digests=()):
    return LedgerEntry(
        of.query_id, "//t", of.batch_id, run, transaction, offsets_of(of), part, count, digests
    )  # fmt: skip


BEFORE_SOURCES = (replace(QUEUE, partitions=(PartitionRange(0, 0, 10), PartitionRange(1, 0, 4))),)
BEFORE = entry_of(batch(*BEFORE_SOURCES, number=4))


class Cluster:
    """A cluster whose requests fail as they are told to.

    Attributes:
        fails: per transaction, the request that fails, and how. A commit that fails with `applied` set
            counts nevertheless.
        unpinned: how often the proxy was given up.
        keys: of the target, as a result that replaces them finds them.
    """

    keys: tuple[bytes, ...] = ()

    def __init__(self, *fails, entry=BEFORE, at=(10, 4), applied=True):
        self.entry, self.at, self.applied = entry, dict(enumerate(at)), applied
        self.fails = deque(fails)
        self.requests, self.unpinned, self.begun = [], 0, 0

    def begin(self, timeout, connections):
        assert (timeout, connections) == (LEASE, 3)
        self.begun += 1
        return Transaction(
            self, f"tx{self.begun}", self.fails.popleft() if self.fails else ("", None)
        )

    def begin_ahead(self, timeout, connections, reads):
        return TransactionAhead(
            Thread(), partial(self.begin, timeout, connections), reads, connections
        )

    def join_ahead(self, number, connections, reads, *, proxy):
        assert (connections, proxy) == (3, "proxy")
        joined = Transaction(self, number, self.fails.popleft() if self.fails else ("", None))
        return TransactionAhead(Thread(), lambda: joined, reads, connections)

    def unpin(self):
        self.unpinned += 1

    def lookup(self, path, keys):
        if path == "//ledger":
            assert keys == [{"query_id": "query", "target": "//t"}]
            return [self.entry and self.entry.to_row()]
        assert path == "//c"
        names = {"queue_cluster": "local", "queue_path": "//q"}
        partitions = [key.pop("partition_index") for key in map(dict, keys)]
        assert all(key.items() >= names.items() for key in keys)
        return [
            None if self.at[one] is None else {"partition_index": one, "offset": self.at[one]}
            for one in partitions
        ]


class Thread(Executor):
    """A thread that makes every call at once."""

    def submit(self, call):
        future = Future()
        try:
            future.set_result(call())
        except ExactlyOnceError as error:
            future.set_exception(error)
        return future


class Transaction:
    proxy = "proxy"

    def __init__(self, cluster, number, fails):
        self.cluster, self.id, (self.failing, self.error) = cluster, number, fails
        self.row = None

    def over(self, _clients):
        return self

    def ask(self, request, *details):
        self.cluster.requests.append((request, *details))
        if request == self.failing:
            raise self.error

    def lookup(self, path, keys):
        self.ask("lookup", path)
        return self.cluster.lookup(path, keys)

    def side_by_side(self, calls):
        return [call(self) for call in calls]

    def select(self, path, columns, *, limit):
        assert columns == ("k",)
        self.ask("select", path)
        return b"".join(self.cluster.keys[:limit])

    def write(self, path, payloads, wire, options=PLAIN_WRITE):
        data = b"".join(b"-" * one.deletes + one.data for one in payloads)
        self.ask("write", path, data, wire, options)

    def insert(self, path, rows):
        if path == "//ledger":
            (self.row,) = rows
            rows = self.row["part"]
        else:
            rows = {row["partition_index"]: row["offset"] for row in rows}
        self.ask("insert", path, rows)

    def commit(self, _written=()):
        if self.failing != "commit" or self.cluster.applied:
            self.cluster.entry = LedgerEntry.from_row(self.row)
        self.ask("commit")

    def abort(self):
        self.ask("abort")


def committer(cluster, log=lambda *_, **__: None, *, of=None, attempts=3, advance=True, **options):
    return BatchCommit(
        CommitLedger("//ledger", "query", ["//t"]),
        of or batch(),
        cluster,
        policy=RetryPolicy(attempts=attempts, first_wait=timedelta(0), max_wait=timedelta(0)),
        emit=log,
        connections=3,
        advance_consumer=advance,
        **options,
    )


READS = [("lookup", "//ledger"), ("lookup", "//c")]
WRITES = [
    ("write", "//t", b"ab", "yson", PLAIN_WRITE), ("write", "//t", b"c", "yson", PLAIN_WRITE),
    ("insert", "//c", {0: 15}), ("insert", "//ledger", 1),
]  # fmt: skip


@contextmanager
def ahead(commit):
    """Open the transaction of the first attempt ahead, while a block computes the rows."""
    with commit:
        yield commit.begin_ahead()


def test_a_batch_is_read_written_advanced_recorded_and_committed():
    """Each request once, and an event after each step."""
    cluster, log = Cluster(), Told()
    done = committer(cluster, log, of=batch(others="digest")).commit(whole([ROWS]))
    assert done == Committed("tx1", 1)
    assert cluster.requests == [*READS, *WRITES, ("commit",)]
    assert log == [
        (Event.TRANSACTION_STARTED, {"attempt": 1, "transaction": "tx1"}),
        (
            Event.ROWS_WRITTEN,
            {"path": "//t", "rows": 3, "replaced": 0, "outdated": 0, "sent_by": "driver"},
        ),
        (Event.OFFSETS_ADVANCED, {"partitions": 1}),
        (
            Event.LEDGER_RECORDED,
            {
                "transaction": "tx1",
                "inputs": [
                    {
                        "cluster": QUEUE.cluster,
                        "queue": QUEUE.queue,
                        "consumer": QUEUE.consumer,
                        "ranges": {"0": [10, 15]},
                    }
                ],
                "outputs": {"//t": 3},
            },
        ),
        (Event.TRANSACTION_COMMITTED, {"attempt": 1, "transaction": "tx1"}),
    ]
    entry = cluster.entry
    assert (entry.run_id, entry.batch_id, entry.tally.rows) == ("run", 5, 3)
    assert (entry.part, entry.part_count, entry.part_digests) == (1, 1, ())
    assert entry.other_sources == "digest"
    assert datetime.fromisoformat(entry.committed_at).tzinfo is not None
    assert entry.offset(QUEUE.key, 0).left == 15
    assert cluster.unpinned == 0


def test_rows_that_the_tasks_wrote_are_not_told_as_written():
    """They were, when the tasks wrote them."""
    log = Told()
    committer(Cluster(), log).commit(whole([TargetRows("//t", [], "yson", 3)]))
    assert log.of(Event.ROWS_WRITTEN) == []


@pytest.mark.parametrize("is_so", [False, True])
def test_entry_says_whether_the_query_keeps_state_and_moves_its_consumer(is_so):
    """The first cannot continue with a new checkpoint; the second tells which sink is the last."""
    cluster = Cluster(entry=None)
    of = replace(batch(), stateful=is_so)
    committer(cluster, of=of, advance=is_so).commit(whole([ROWS]))
    assert (cluster.entry.keeps_state, cluster.entry.moves_consumer) == (is_so, is_so)


def test_options_of_a_target_are_those_of_its_requests():
    """Updates keep columns, aggregates combine."""
    cluster = Cluster()
    options = WriteOptions(update=True, aggregate=True)
    rows = TargetRows("//t", [[Payload(1, b"a")]], "arrow", 1, options)
    committer(cluster).commit(whole([rows]))
    assert ("write", "//t", b"a", "arrow", options) in cluster.requests


@pytest.mark.parametrize(
    ("sources", "advance"),
    [
        ((SourceRange("local", "//q", None, (PartitionRange(0, 10, 15),), "id"),), True),
        ((SourceRange("local", "//q", "//c", (PartitionRange(0, 10, 10),), "id"),), True),
        ((QUEUE,), False),
    ],
)  # fmt: skip
def test_a_consumer_that_does_not_move_is_not_asked(sources, advance):
    """Without a consumer, without new rows, or when another sink moves it."""
    cluster, log = Cluster(entry=None), Told()
    committer(cluster, log, of=batch(*sources), advance=advance).commit(whole([ROWS]))
    assert cluster.requests == [READS[0], *WRITES[:2], WRITES[3], ("commit",)]
    assert log.of(Event.OFFSETS_ADVANCED) == [{"partitions": 0}]
    left = cluster.entry.offset(sources[0].key, 0).left
    assert left == (15 if sources[0].consumer is None else 0)


@pytest.mark.parametrize(
    ("at", "accepted", "told"),
    [
        (((0, 10), (1, 4)), (), []),
        (((0, 7), (1, 3)), (), [{"first": 3, "last": 4, "rows": 4}]),
        (((0, 7), (1, 3)), (3, 4), []),
        # A partition that is new, and one that an older batch has not reached.
        (((0, 12),), (), []),
    ],
)  # fmt: skip
def test_rows_of_batches_that_never_came_are_told(at, accepted, told):
    """Once, however many attempts the batch takes, unless the user has settled them.

    It is no error: the function may have left out empty DataFrames.
    """
    read = replace(QUEUE, partitions=tuple(PartitionRange(one, 0, end) for one, end in at))
    entry = entry_of(batch(read, number=2))
    log = Told()
    conflict = ("write", ConflictError("told"))
    cluster = Cluster(conflict, entry=entry, at=[end for _, end in at] + [4] * (2 - len(at)))
    sources = QUEUE if at[0][1] <= 10 else replace(QUEUE, partitions=(PartitionRange(0, 12, 15),))
    done = committer(cluster, log, of=batch(sources), accepted=accepted, logged=lambda _: (read,))
    assert done.commit(whole([ROWS])).attempts == 2
    assert log.of(Event.BATCHES_LEFT_OUT) == told


@pytest.mark.parametrize(
    ("error", "unpinned"),
    [(ClusterUnavailableError, 1), (TransactionLostError, 1), (ConflictError, 0)],
)
@pytest.mark.parametrize("request_", ["lookup", "write", "insert"])
def test_a_failed_attempt_is_aborted_and_made_again(request_, error, unpinned):
    """Through another proxy, unless the cluster itself has answered."""
    cluster, log = Cluster((request_, error("told"))), Told()
    done = committer(cluster, log).commit(whole([ROWS]))
    assert done == Committed("tx2", 2)
    ended = cluster.requests.index(("abort",))
    assert cluster.requests[ended + 1 :] == [*READS, *WRITES, ("commit",)]
    assert log.of(Event.TRANSACTION_ABORTED) == [{"attempt": 1, "transaction": "tx1"}]
    assert cluster.unpinned == unpinned


def test_a_refusal_is_aborted_and_not_made_again():
    """Nothing would change."""
    cluster = Cluster(("write", AccessError("told")))
    with pytest.raises(AccessError):
        committer(cluster).commit(whole([ROWS]))
    assert (cluster.requests[-1], cluster.begun) == (("abort",), 1)


def test_a_refused_commit_is_neither_aborted_nor_looked_up():
    """The transaction is gone, and the answer says that nothing was written."""
    cluster, log = Cluster(("commit", ConflictError("told")), applied=False), Told()
    assert committer(cluster, log).commit(whole([ROWS])).attempts == 2
    assert ("abort",) not in cluster.requests
    assert log.of(Event.COMMIT_OUTCOME_UNKNOWN, Event.COMMIT_OUTCOME_RESOLVED) == []
    assert len(log.of(Event.TRANSACTION_COMMITTED)) == 1


def test_an_unknown_commit_that_the_ledger_has_is_done():
    """It is looked up through another proxy, outside the transaction."""
    cluster, log = Cluster(("commit", CommitOutcomeUnknownError("told"))), Told()
    sent = {}
    done = committer(cluster, log, commits_sent=sent).commit(whole([ROWS]))
    assert done == Committed("tx1", 1)
    assert cluster.unpinned == 1
    assert log[-3:] == [
        (Event.COMMIT_OUTCOME_UNKNOWN, {"attempt": 1, "transaction": "tx1", "error": "told."}),
        (Event.COMMIT_OUTCOME_RESOLVED, {"transaction": "tx1", "own": True}),
        (Event.TRANSACTION_COMMITTED, {"attempt": 1, "transaction": "tx1"}),
    ]
    assert sent == {"tx1": None}


@pytest.mark.parametrize("entry", [BEFORE, None])
def test_an_unknown_commit_that_the_ledger_lacks_is_made_again(entry):
    """Also when the ledger has the entry of another transaction."""
    fails = ("commit", CommitOutcomeUnknownError("told"))
    cluster, log = Cluster(fails, entry=entry, at=(None, None), applied=False), Told()
    sources = () if entry is None else (QUEUE,)
    cluster.at = {0: 10, 1: 4}
    done = committer(cluster, log, of=batch(*sources)).commit(whole([ROWS]))
    assert done == Committed("tx2", 2)
    assert log.of(Event.COMMIT_OUTCOME_RESOLVED) == []
    assert [fields["transaction"] for fields in log.of(Event.TRANSACTION_COMMITTED)] == ["tx2"]
    assert cluster.unpinned == 1, "the proxy that answered the look-up is healthy"


def open_refusal(of=RequestRefusedError):
    """Return what a commit raises that was answered with a code which proves nothing."""
    unknown = CommitOutcomeUnknownError("told")
    unknown.__cause__ = of("a code that nobody knows")
    return "commit", unknown


@pytest.mark.parametrize("rows", [ROWS, "inside"])
def test_a_commit_that_was_refused_with_an_unknown_code_may_have_been_applied(rows):
    """The ledger knows. Without the entry, the refusal is raised: another attempt meets it again."""
    rows = INSIDE if rows == "inside" else rows
    cluster = Cluster(open_refusal())
    commit = committer(cluster)
    with ahead(commit):
        assert commit.commit(whole([rows])) == Committed("tx1", 1)
    cluster = Cluster(open_refusal(), applied=False)
    commit = committer(cluster)
    with ahead(commit), pytest.raises(RequestRefusedError, match="a code that nobody knows"):
        commit.commit(whole([rows]))
    assert cluster.begun == 1


def test_a_commit_whose_answer_is_a_failure_that_passes_is_made_again():
    """Whether the answer was lost, or says that a server did not answer another."""
    cluster = Cluster(open_refusal(ClusterUnavailableError), applied=False)
    assert committer(cluster).commit(whole([ROWS])) == Committed("tx2", 2)
    assert cluster.unpinned == 1, "the proxy that answered the look-up is healthy"


class Late(Cluster):
    """A cluster on which an unknown commit shows only when the next transaction begins."""

    def begin(self, timeout, connections):
        if self.begun:
            self.entry = entry_of(batch(), "tx1")
        return super().begin(timeout, connections)


def test_a_commit_that_is_applied_late_is_found_by_the_next_attempt():
    """Its transaction is one of ours, and the rows are not written again."""
    cluster, log = Late(("commit", CommitOutcomeUnknownError("told")), applied=False), Told()
    done = committer(cluster, log).commit(whole([ROWS]))
    assert done == Committed("tx1", 2)
    assert cluster.requests[-3:] == [*READS, ("abort",)]
    assert log.of(Event.COMMIT_OUTCOME_RESOLVED) == [{"transaction": "tx1", "own": True}]


def test_a_batch_that_an_earlier_run_committed_is_found():
    """Between the look-up of this run and its transaction."""
    cluster, log = Cluster(entry=entry_of(batch(), "theirs", run="earlier")), Told()
    assert committer(cluster, log).commit(whole([ROWS])) == Committed("theirs", 1)
    assert cluster.requests == [*READS, ("abort",)]
    assert log.of(Event.COMMIT_OUTCOME_RESOLVED) == [{"transaction": "theirs", "own": False}]


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (entry_of(batch(), "theirs"), RepeatedCallError),
        (entry_of(batch(number=6), "theirs", run="other"), FencedError),
        (entry_of(batch(), "theirs", run="earlier", count=2, part=1), LedgerDivergedError),
    ],
)
def test_an_entry_of_somebody_else_is_refused(entry, error):
    """And the transaction is aborted."""
    cluster = Cluster(entry=entry)
    with pytest.raises(error):
        committer(cluster).commit(whole([ROWS]))
    assert cluster.requests == [*READS, ("abort",)]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("event", [Event.TRANSACTION_STARTED, Event.LEDGER_RECORDED])
def test_whatever_is_raised_before_the_commit_ends_the_transaction(event, error):
    """A transaction that stays open keeps its clients."""
    cluster = Cluster()

    def emit(told, **_fields):
        if told == event:
            raise error

    with pytest.raises(error):
        committer(cluster, emit).commit(whole([ROWS]))
    assert (cluster.begun, cluster.requests[-1]) == (1, ("abort",))
    assert ("commit",) not in cluster.requests


def test_the_rows_of_a_failed_call_are_remembered():
    """Each transaction keeps the digest of the rows it was sent with first."""
    sent = {"earlier": "digest"}
    cluster = Cluster(*[("commit", CommitOutcomeUnknownError("told"))] * 2, applied=False)
    with pytest.raises(RetriesExhaustedError):
        committer(cluster, attempts=2, commits_sent=sent).commit(whole([ROWS]))
    assert sent["earlier"] == "digest"
    assert sent["tx1"] == sent["tx2"] == digest_of([ROWS])


@pytest.mark.parametrize(
    ("data", "remembers", "refusal"),
    [
        (b"ab", True, ""),
        (b"other", True, "this call has other rows"),
        (b"ab", False, "Another sink"),
    ],
)
def test_the_late_commit_of_a_failed_call_is_met_by_the_next_one(data, remembers, refusal):
    """Of the same rows it is theirs. Other rows would be lost, and another sink knows nothing of it."""
    cluster, sent = Cluster(("commit", CommitOutcomeUnknownError("told")), applied=False), {}
    with pytest.raises(RetriesExhaustedError):
        committer(cluster, attempts=1, commits_sent=sent).commit(whole([ROWS]))
    cluster.entry = entry_of(batch(), "tx1")
    again = committer(cluster, commits_sent=sent if remembers else {})
    rows = replace(ROWS, groups=[[Payload(2, data)], *ROWS.groups[1:]])
    with pytest.raises(RepeatedCallError, match=refusal) if refusal else nullcontext():
        assert again.commit(whole([rows])).transaction_id == "tx1"


def test_table_that_is_new_is_written_by_a_transaction_that_began_after_it():
    """What was opened ahead is aborted: tablets know nothing of the time before their mount."""
    cluster = Cluster()
    commit = committer(cluster)
    with ahead(commit):
        commit.commit(whole([replace(ROWS, is_new=True)]))
    assert cluster.requests.index(("abort",)) < cluster.requests.index(WRITES[0])
    assert cluster.entry.transaction_id == "tx2"


def test_rows_of_a_pattern_are_one_event():
    log = Told()
    tables = [replace(ROWS, path=path, pattern="//{a}") for path in ("//x", "//y")]
    committer(Cluster(), log).commit(whole(tables))
    assert [(one["path"], one["rows"]) for one in log.of(Event.ROWS_WRITTEN)] == [("//{a}", 6)]


def test_a_transaction_that_was_opened_ahead_is_the_one_of_the_first_attempt():
    """It is opened and read before the rows are known. The next attempt opens its own, with the same rows."""
    cluster, log = Cluster(("commit", ConflictError("told")), applied=False), Told()
    commit = committer(cluster, log)
    with ahead(commit) as begun:
        assert commit.begin_ahead() is begun, "another route of the batch takes the same one"
        assert (cluster.requests, log) == (READS, [])
        assert commit.commit(whole([ROWS])) == Committed("tx2", 2)
    assert cluster.requests == [*READS, *WRITES, ("commit",)] * 2
    assert [fields["transaction"] for fields in log.of(Event.TRANSACTION_STARTED)] == ["tx1", "tx2"]


@pytest.mark.parametrize(("fails", "reads"), [((), 2), (("lookup", ConflictError("told")), 1)])
def test_a_job_that_fails_leaves_no_transaction_behind(fails, reads):
    """What was opened ahead is aborted, whatever was read. No row was sent, and the job's error is told."""
    cluster = Cluster(*[fails] if fails else [])
    with pytest.raises(ZeroDivisionError), ahead(committer(cluster)):
        raise ZeroDivisionError
    assert cluster.requests == [*READS[:reads], ("abort",)]


INSIDE = replace(ROWS, groups=(), sent_bytes=9, sent_by=SentBy.TASKS, inside="tx1")
"""Rows that tasks have written into the first transaction."""


def test_rows_of_tasks_are_not_committed_once_claims_may_be_gone(monkeypatch):
    """A partition whose claim has expired may have been written twice."""
    age = claims.HOLD.total_seconds() + 1
    monkeypatch.setattr(claims, "seconds_since", lambda _: age)
    cluster = Cluster()
    commit = committer(cluster)
    with ahead(commit), pytest.raises(TransactionLostError, match="claims may be gone"):
        commit.commit(whole([INSIDE]))
    assert cluster.requests[-1] == ("abort",)
    assert ("commit",) not in cluster.requests


@pytest.mark.parametrize(("age", "is_young"), [(0.0, True), (1.0, False)])
def test_transaction_that_tasks_have_opened_is_taken_over(age, is_young):
    """None is begun. Claims count from the plan on, which is older than the first row."""
    cluster = Cluster()
    commit = committer(cluster)
    with commit:
        hold = claims.HOLD.total_seconds() - 0.5
        commit.begin_ahead(OpenTransaction("tx1", "proxy"), hold + age)
        if is_young:
            assert commit.commit(whole([INSIDE])) == Committed("tx1", 1)
        else:
            with pytest.raises(TransactionLostError, match="claims may be gone"):
                commit.commit(whole([INSIDE]))
    assert cluster.begun == 0
    assert cluster.requests[-1] == (("commit",) if is_young else ("abort",))


def test_rows_that_tasks_have_written_are_committed_with_their_transaction():
    """The driver sends the consumers and the ledger entry, and whatever else is not there."""
    cluster, log = Cluster(), Told()
    commit = committer(cluster, log)
    with ahead(commit) as begun:
        assert (begun.transaction().id, begun.transaction().proxy) == ("tx1", "proxy")
        assert commit.commit(whole([INSIDE])) == Committed("tx1", 1)
    assert cluster.requests == [*READS, *WRITES[2:], ("commit",)]
    told = [(fields["rows"], fields["sent_by"]) for fields in log.of(Event.ROWS_WRITTEN)]
    assert told == [(3, "tasks")]
    assert cluster.entry.tally.sent_by == "tasks"


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ("lookup", ClusterUnavailableError("told")),
        ("insert", TransactionLostError("told")),
        ("commit", ConflictError("told")),
        ("commit", CommitOutcomeUnknownError("told")),
    ],
)
def test_rows_that_tasks_have_written_have_one_attempt(request_, error):
    """Another transaction would not have them. What failed is told, and the batch is computed again."""
    cluster, sent = Cluster((request_, error), applied=False), {}
    commit = committer(cluster, commits_sent=sent)
    with ahead(commit), pytest.raises(type(error)):
        commit.commit(whole([INSIDE]))
    assert cluster.begun == 1
    assert sent == ({"tx1": transactional.UNSEEN} if request_ == "commit" else {})
    # The same call writes the rows from the driver, whatever became of the commit.
    assert commit.commit(whole([ROWS])) == Committed("tx2", 1)


class Absent(Cluster):
    """A cluster that first fails to show its ledger, then shows it as before, and then as it is."""

    looks = 0

    def lookup(self, path, keys):
        if self.unpinned:
            self.looks += 1
            if self.looks == 1:
                raise ClusterUnavailableError("told")
            if self.looks == 2:
                return [BEFORE.to_row()]
        return super().lookup(path, keys)


def test_rows_of_tasks_are_looked_for_in_the_ledger_before_they_are_computed_again():
    """The commit without an answer may land late, and the cluster may be away for a moment."""
    cluster = Absent(("commit", CommitOutcomeUnknownError("told")))
    commit = committer(cluster)
    with ahead(commit):
        assert commit.commit(whole([INSIDE])) == Committed("tx1", 1)
    assert (cluster.looks, cluster.begun) == (3, 1)


def test_a_late_commit_of_the_tasks_rows_is_found_by_the_call_that_sent_it():
    """And only by that one: nobody can compare the rows of a later call with those."""
    lost, sent = ("commit", CommitOutcomeUnknownError("told")), {}
    cluster = Cluster(lost, applied=False)
    commit = committer(cluster, commits_sent=sent)
    with ahead(commit), pytest.raises(CommitOutcomeUnknownError):
        commit.commit(whole([INSIDE]))
    cluster.entry = entry_of(batch(), "tx1")
    assert commit.commit(whole([ROWS])) == Committed("tx1", 1)
    with pytest.raises(RepeatedCallError):
        committer(cluster, commits_sent=sent).commit(whole([ROWS]))


def test_rows_without_their_transaction_are_not_committed():
    """The sink computes the batch again."""
    cluster = Cluster()
    with pytest.raises(TransactionLostError):
        committer(cluster).commit(whole([INSIDE]))
    assert cluster.begun == 0


@pytest.mark.parametrize(("seconds", "used"), [(14.9, "tx1"), (15.1, "tx2")])
def test_a_transaction_that_has_waited_for_a_quarter_of_its_lease_is_given_up(
    monkeypatch, seconds, used
):
    """The rows need the rest of it; the attempt opens another one."""
    now = [100.0]
    monkeypatch.setattr(transactional.time, "monotonic", lambda: now[0])
    cluster = Cluster()
    commit = committer(cluster)
    with ahead(commit):
        now[0] += seconds
        assert commit.commit(whole([ROWS])) == Committed(used, 1)
    assert cluster.requests.count(("abort",)) == cluster.begun - 1
    assert cluster.requests[-5:] == [*WRITES, ("commit",)]


@pytest.mark.parametrize("begins", [True, False])
def test_a_failure_ahead_is_one_of_the_first_attempt(begins):
    """It is repeated like any other, through another proxy."""
    error = ClusterUnavailableError("told")
    cluster = Cluster(("lookup", error)) if begins else Unreachable(error)
    commit = committer(cluster)
    with ahead(commit) as opened:
        assert (opened is None) is not begins
        done = commit.commit(whole([ROWS]))
    assert done == (Committed("tx2", 2) if begins else Committed("tx1", 1))
    assert cluster.unpinned == begins


class LateAhead:
    """A transaction whose reads are answered when they are waited for."""

    def __init__(self, begun, reads):
        self.transaction = lambda: begun
        self.read = cache(partial(reads, begun))


class Slow(Cluster):
    """A cluster that answers what was asked ahead after what was asked later."""

    def begin_ahead(self, timeout, connections, reads):
        return LateAhead(self.begin(timeout, connections), reads)


@pytest.mark.parametrize("elsewhere", ["", "ledger", "consumer"])
def test_rows_go_beside_the_reads_and_are_committed_if_these_find_what_the_run_has_left(elsewhere):
    """One round trip less. If somebody else has written, the next attempt reads first."""
    cluster = Slow()
    if elsewhere == "ledger":
        cluster.entry = entry_of(batch(*BEFORE_SOURCES, number=4), "theirs")
    if elsewhere == "consumer":
        cluster.at[1] = 3
    commit = committer(cluster, before=BEFORE)
    wrong = [*WRITES, *READS, ("abort",)]
    with ahead(commit):
        if elsewhere == "consumer":
            with pytest.raises(OffsetConflictError):
                commit.commit(whole([ROWS]))
            assert cluster.requests == [*wrong, *READS, ("abort",)]
            return
        assert commit.commit(whole([ROWS])).entry == cluster.entry
    first = wrong if elsewhere else [*WRITES, *READS]
    assert cluster.requests == [*first, *([*READS, *WRITES] if elsewhere else []), ("commit",)]


def test_transaction_whose_rows_fail_ends_after_the_reads_beside_them():
    """A read in a transaction that has ended would fail, and hide why."""
    cluster = Slow(("write", ConflictError("told")))
    commit = committer(cluster, before=BEFORE)
    with ahead(commit):
        commit.commit(whole([ROWS]))
    ends = cluster.requests.index(("abort",))
    assert [request for request, *_ in cluster.requests[:ends]] == [
        "write",
        *["lookup"] * len(READS),
    ]


@pytest.mark.parametrize(
    ("of", "part"),
    [
        (lambda: batch(number=4), whole([ROWS])),  # it is there already
        (lambda: replace(batch(), stateful=True), whole([ROWS])),  # the source moves the consumer
        (lambda: batch(replace(QUEUE, partitions=(PartitionRange(2, 0, 3),))), whole([ROWS])),
    ],
)
def test_nothing_is_written_beside_the_reads_where_their_answer_is_not_known(of, part):
    """Such as a partition that is new."""
    cluster = Slow(at=(10, 4, 0))
    commit = committer(cluster, of=of(), before=BEFORE)
    with ahead(commit), suppress(ExactlyOnceError):
        commit.commit(part)
    assert cluster.requests[:2] == READS


class Unreachable(Cluster):
    """A cluster whose proxies are not known while the rows are computed."""

    def begin_ahead(self, *_):
        raise self.fails.popleft()


def test_a_writer_that_commits_while_the_rows_are_computed_is_met_by_the_next_attempt():
    """The transaction does not see it, so the cluster must refuse its commit."""
    cluster = Cluster(("commit", ConflictError("told")), applied=False)
    commit = committer(cluster)
    with ahead(commit):
        cluster.entry = entry_of(batch(number=6), "theirs", run="other")
        with pytest.raises(FencedError):
            commit.commit(whole([ROWS]))
    assert cluster.requests == [*READS, *WRITES, ("commit",), *READS, ("abort",)]


PARTS = split([ROWS], 2)


@pytest.mark.parametrize(
    ("fails", "applied"),
    [
        ([], True),
        ([("commit", ConflictError("told"))], False),
        ([("commit", CommitOutcomeUnknownError("told"))], True),
        ([("commit", CommitOutcomeUnknownError("told"))], False),
        ([("insert", ClusterUnavailableError("told"))], True),
    ],
    ids=["committed", "conflict", "lost-answer", "lost-commit", "lost-write"],
)
def test_digest_counts_a_batch_once_whatever_its_attempts(fails, applied):
    """It is added to what the ledger holds, in the transaction of the batch."""
    rows = replace(ROWS, digest=9)
    tally = Tally(1, 1, 1, digest=RowDigest(4, 4, from_start=True, replaces=False))
    cluster = Cluster(*fails, entry=replace(BEFORE, tallies={"//t": tally}), applied=applied)
    committer(cluster).commit(whole([rows]))
    found = cluster.entry.tallies["//t"].digest
    assert found == RowDigest(9, 13, from_start=True, replaces=False)


def test_parts_are_committed_in_turn_and_the_consumer_moves_with_the_last():
    """Every part records the digests up to its own."""
    cluster, log = Cluster(), Told()
    sent = {}
    done = committer(cluster, log, commits_sent=sent).commit(PARTS)
    assert done == Committed("tx2", 2)
    assert [request for request in cluster.requests if request[0] == "insert"] == [
        ("insert", "//ledger", 1), ("insert", "//c", {0: 15}), ("insert", "//ledger", 2)
    ]  # fmt: skip
    assert log.of(Event.OFFSETS_ADVANCED) == [{"partitions": 1}]
    assert [fields["rows"] for fields in log.of(Event.ROWS_WRITTEN)] == [2, 1]
    assert cluster.entry.part_digests == PARTS[1].digests
    assert cluster.entry.tally.rows == 3


def test_a_part_before_the_last_leaves_the_consumer_where_it_was():
    """So the entry says, too."""
    cluster = Cluster(("", None), ("commit", AccessError("told")), applied=False)
    with pytest.raises(AccessError):
        committer(cluster).commit(PARTS)
    assert (cluster.entry.part, cluster.entry.is_complete) == (1, False)
    assert cluster.entry.offset(QUEUE.key, 0).left == 10


def resumed(part, *, digests=None, count=2):
    known = PARTS[-1].digests[:part] if digests is None else digests
    found = entry_of(batch(), "first", run="earlier", part=part, count=count, digests=known)
    return replace(found, offsets=offsets_of(batch(), BEFORE, moved=part == count))


def test_committed_parts_are_left_out():
    """The others follow; the rows of the batch are all of them."""
    cluster = Cluster(entry=resumed(1))
    done = committer(cluster).commit(PARTS, resumed(1))
    assert done == Committed("tx1", 1)
    assert [request[2] for request in cluster.requests if request[0] == "write"] == [b"c"]
    assert committer(Cluster()).commit(PARTS, resumed(2)) == Committed("first", 0)


@pytest.mark.parametrize("entry", [resumed(1, digests=("other",)), resumed(1, count=3)])
def test_a_batch_that_is_cut_otherwise_is_refused(entry):
    """Or has other rows: nothing is sent."""
    cluster = Cluster(entry=entry)
    with pytest.raises(LedgerDivergedError, match="differs from the 1 of its"):
        committer(cluster).commit(PARTS, entry)
    assert cluster.begun == 0


def test_a_part_that_an_earlier_attempt_committed_is_found_by_its_digest():
    """With other digests it is another batch."""
    cluster = Cluster(entry=resumed(1))
    assert committer(cluster).commit(PARTS).attempts == 2
    assert cluster.requests[:3] == [*READS, ("abort",)]
    with pytest.raises(LedgerDivergedError):
        committer(Cluster(entry=resumed(1, digests=("other",)))).commit(PARTS)


def test_a_consumer_without_a_row_is_at_the_first_row():
    """As before its first batch; a batch that begins at row 0 moves it from there."""
    first = replace(QUEUE, partitions=(PartitionRange(0, 0, 5), PartitionRange(1, 0, 0)))
    cluster = Cluster(entry=None, at=(None, None))
    committer(cluster, of=batch(first, number=0)).commit(whole([ROWS]))
    assert ("insert", "//c", {0: 5}) in cluster.requests


@pytest.mark.parametrize(
    ("entry", "begins"), [(BEFORE, False), (None, True)], ids=["later", "first batch"]
)
def test_a_consumer_that_somebody_moved_ends_the_attempt(entry, begins):
    """Another sink of the function, maybe; in the first batch, also where the query was told to begin."""
    cluster = Cluster(entry=entry, at=(11, 4))
    with pytest.raises(OffsetConflictError) as caught:
        committer(cluster).commit(whole([ROWS]))
    assert cluster.requests == [*READS, ("abort",)]
    assert "advance_consumer=False" in str(caught.value)
    assert ("starting_offsets" in str(caught.value)) == begins


@pytest.mark.parametrize(
    "options", [{"accepted": {5, 6}}, {"logged": {4: BEFORE_SOURCES}.get}], ids=["person", "log"]
)
def test_a_gap_in_the_batches_is_settled_by_the_log_or_by_a_person(options):
    """What the sink knows of it counts inside the transaction too."""
    later = replace(QUEUE, partitions=(PartitionRange(0, 20, 25), PartitionRange(1, 4, 4)))
    now = batch(later, number=7)
    with pytest.raises(LedgerDivergedError, match="starts at 20"):
        committer(Cluster(at=(20, 4)), of=now).commit(whole([ROWS]))
    done = committer(Cluster(at=(20, 4)), of=now, **options).commit(whole([ROWS]))
    assert done.attempts == 1


PLAN = check_frame(
    pa.schema([("k", pa.int64()), ("v", pa.int64())]),
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
    rows = pa.RecordBatch.from_pydict(dict.fromkeys("kv", pa.array(numbers, pa.int64())))
    return row_fragments(rows, PLAN.keys)


def result(*numbers):
    """Rows that take the place of all in the target, of which there may be ten."""
    groups = [[Payload(len(numbers), b"rows")]] if numbers else []
    complete = CompleteResult(PLAN.keys, keys(*numbers), 10)
    return whole([TargetRows("//t", groups, "yson", len(numbers), complete=complete)])


def replaced(*gone, rows=b"rows"):
    """Return the requests of an attempt that deletes these keys."""
    deletes = b"-" + b"".join(keys(*gone).to_pylist())
    written = [("write", "//t", data, "yson", PLAIN_WRITE) for data in (deletes, rows) if data]
    return [("select", "//t"), *written]


def test_every_attempt_replaces_what_it_finds():
    """What came in between is deleted as well; of what is done to one key the last thing counts."""
    cluster = Cluster(("commit", ConflictError("told")), applied=False)
    cluster.keys = keys(1, 2, 3).to_pylist()

    def others_write(event, **_fields):
        if event == Event.RETRY_SCHEDULED:
            cluster.keys += keys(7).to_pylist()

    committer(cluster, others_write).commit(result(2, 4))
    found = [request for request in cluster.requests if request[0] in {"select", "write"}]
    assert found == [*replaced(1, 3), *replaced(1, 3, 7)]


def test_an_empty_result_only_deletes():
    """And is recorded like any other."""
    cluster = Cluster()
    cluster.keys = keys(1, 2).to_pylist()
    committer(cluster).commit(result())
    found = [request for request in cluster.requests if request[0] in {"select", "write"}]
    assert found == replaced(1, 2, rows=b"")
    assert cluster.entry.batch_id == 5


def test_nothing_is_sent_when_there_is_too_much_to_replace():
    """The attempt ends before it has written anything."""
    cluster = Cluster()
    cluster.keys = keys(*range(11)).to_pylist()
    with pytest.raises(BatchTooLargeError):
        committer(cluster).commit(result(100))
    assert cluster.entry == BEFORE
    assert not [request for request in cluster.requests if request[0] == "write"]
