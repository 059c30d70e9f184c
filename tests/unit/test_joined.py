"""A task that writes into a transaction which it shares, without Spark: who may write, and what is sent."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.model.tasks import COLUMNS, encoder_of, prepared_target, task_context
from tests.unit.test_claims import TABLE, Cluster
from tests.unit.test_row_encoder import REJECTS, fragment, planned
from yt_exactly_once import RetryPolicy, Target, config
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.commit.claims import Claims
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.delivery.tried import Tried
from yt_exactly_once.errors import (
    EncodingError,
    RepeatedTaskError,
    TasksRefusedError,
    TransactionLostError,
)
from yt_exactly_once.spark.modes import joined
from yt_exactly_once.spark.modes.joined import JoinedInsertTask
from yt_exactly_once.spark.modes.mode import TaskSettings
from yt_exactly_once.spark.modes.tasks import ChunkReport
from yt_exactly_once.spark.sink.placement import TABLET_COLUMN, Placement
from yt_exactly_once.spark.sink.target import ROUND_ROBIN

PLAN, QUERY = "plan", "query"
OF_DRIVER = OpenTransaction("1-2", "localhost:1")
BY_CLAIM = Claims(TABLE, PLAN, "//t")
TRIED = Tried(QUERY, "//t", 7, SentBy.TASKS)


def rows(*values):
    """Return rows whose columns all have these values."""
    return pa.RecordBatch.from_pydict({name: pa.array(values, pa.int64()) for name in COLUMNS})


class Shared(Cluster):
    """The table of claims, and what is sent into which transaction."""

    def __init__(self):
        super().__init__()
        self.sent, self.pinged, self.ends = [], [], False

    def joined(self, name, *, proxy):
        assert proxy == "localhost:1"
        return Inside(self, name)

    def values(self, column="key"):
        """Return what was sent, in order."""
        return [row[column] for _, _, found in self.sent for row in found]


class Inside:
    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name

    def write(self, path, payloads, wire, _options=None):
        assert wire == WireFormat.YSON
        if self.cluster.ends:
            raise TransactionLostError("it has ended")
        for payload in payloads:
            self.cluster.sent.append((self.name, path, fragment(payload.data)))

    def ping(self):
        self.cluster.pinged.append(self.name)


@pytest.fixture
def cluster():
    return Shared()


def task_of(cluster, target=None, *, names=COLUMNS, **given):
    """Return a task that sends two rows per request."""
    prepared = target or prepared_target("//t", is_sorted=False, dyn_batch_size=2, tablets=3)
    settings = TaskSettings(names, prepared, cluster, RetryPolicy(attempts=1), 1)
    return JoinedInsertTask(settings, **{"transaction": None, "claims": BY_CLAIM, **given})


def run(task, *batches, partition=0, attempt=0):
    """Return what an attempt reports, all together."""
    with task_context(partition, attempt, copy=attempt):
        return ChunkReport.of_all(task(batches))


def kept(cluster):
    return Tried.read(cluster, TABLE, QUERY, "//t")


def test_first_attempt_of_a_job_of_one_stage_writes_without_a_claim(cluster):
    """Spark starts it once. Another one is refused before its first request."""
    task = task_of(cluster, transaction=OF_DRIVER, claims=None)
    report = run(task, rows(1, 2, 3))
    assert [(name, path) for name, path, _ in cluster.sent] == [(OF_DRIVER.id, "//t")] * 2
    assert cluster.values() == [1, 2, 3]
    assert (report.row_count, report.rejected_count, report.key_hashes) == (3, 0, b"")
    assert report.byte_count > 0
    with pytest.raises(RepeatedTaskError, match="Attempt 1 of the task of Spark partition 0"):
        run(task, rows(1), attempt=1)
    assert (len(cluster.sent), cluster.begun) == (2, 0)


@pytest.mark.parametrize("transaction", [OF_DRIVER, None], ids=["of the driver", "of the tasks"])
def test_attempt_that_claims_first_writes_and_every_other_one_is_refused(cluster, transaction):
    """Whatever its number, before its first request. Where nobody hears why, it is kept."""
    task = task_of(cluster, transaction=transaction, tried=TRIED)
    run(task, rows(1, 2, 3), attempt=1)
    assert cluster.values() == [1, 2, 3]
    opened = transaction or BY_CLAIM.opened(cluster)
    assert {name for name, _, _ in cluster.sent} == {opened.id}
    with pytest.raises(RepeatedTaskError, match="has claimed"):
        run(task, rows(1, 2, 3))
    assert cluster.values() == [1, 2, 3]
    assert kept(cluster) == (None if transaction else replace(TRIED, has_failed=True))


def test_attempts_have_names_of_their_own():
    """Two drivers may give one number to two attempts."""
    with task_context(0, copy=5):
        one, other = joined.attempt_name(), joined.attempt_name()
    assert one != other
    assert one.startswith("task attempt 5 ")


def test_all_partitions_share_a_transaction(cluster):
    """Also those without rows claim, and open none."""
    task = task_of(cluster)
    run(task, partition=2)
    assert BY_CLAIM.opened(cluster) is None
    run(task, rows(1))
    run(task, rows(2), partition=1)
    assert len({name for name, _, _ in cluster.sent}) == 1
    for partition in range(3):
        with pytest.raises(RepeatedTaskError):
            run(task, rows(3), partition=partition, attempt=1)


def test_row_that_cannot_be_written_does_not_speak_against_tasks(cluster):
    """Whoever sends it meets it again."""
    broken = pa.RecordBatch.from_pydict({"id": [1], "v": pa.array([-1], pa.int16())})
    target = encoder_of(planned(keyed=True), WireFormat.YSON, Placement(None)).target
    with pytest.raises(EncodingError):
        run(task_of(cluster, target, names=("id", "v"), tried=TRIED), broken)
    assert kept(cluster) is None
    assert cluster.sent == []


@pytest.mark.parametrize("given", [{"tried": TRIED}, {}])
def test_lost_transaction_is_kept_for_the_next_plan(cluster, given):
    """If this is to be kept, and raised in any case."""
    cluster.ends = True
    with pytest.raises(TransactionLostError):
        run(task_of(cluster, **given), rows(1))
    assert kept(cluster) == (replace(TRIED, has_failed=True) if given else None)


@pytest.mark.parametrize(("partition", "fits"), [(2, True), (3, False)])
def test_tasks_that_claim_need_a_tablet_each(cluster, partition, fits):
    """Where there is no driver that counts them. Rows of two partitions would mix in a tablet."""
    task = task_of(cluster, tried=TRIED)
    if fits:
        run(task, rows(1), partition=partition)
        return
    with pytest.raises(TasksRefusedError, match="4 tasks cannot write into 3 tablets") as refused:
        run(task, rows(1), partition=partition)
    assert "placement='round_robin'" in refused.value.remedy
    assert cluster.sent == []
    assert "4 tasks" in kept(cluster).lasting


def test_chunk_is_one_request_whatever_tablets_its_rows_are_for(cluster):
    """Each row carries its own."""
    plain = prepared_target("//t", is_sorted=False, dyn_batch_size=3, tablets=3)
    target = replace(plain, placement=Placement(3, ROUND_ROBIN))
    batch = rows(1, 2, 3).append_column(TABLET_COLUMN, pa.array([2, 0, 1], pa.int64()))
    run(task_of(cluster, target, names=(*COLUMNS, TABLET_COLUMN)), batch, partition=7)
    assert len(cluster.sent) == 1
    assert cluster.values("$tablet_index") == [2, 0, 1]


def test_rejected_rows_are_sent_with_the_others(cluster):
    """Into the same transaction, and they are counted apart."""
    found = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "v": pa.array([7, -1, 8], pa.int16())})
    target = encoder_of(planned(keyed=True), WireFormat.YSON, Placement(None)).target
    report = run(task_of(cluster, target, names=("id", "v"), rejects=REJECTS), found)
    assert [path for _, path, _ in cluster.sent] == ["//t", REJECTS.path]
    assert [row["id"] for row in cluster.sent[0][2]] == [1, 3]
    assert (report.row_count, report.rejected_count) == (2, 1)


@pytest.mark.parametrize(
    ("options", "known"), [({}, 0), ({"unique_keys": True}, 3), ({"delete_marker": "gone"}, 2)]
)
def test_keys_that_the_driver_must_compare_are_reported_as_hashes(cluster, options, known):
    """Each row's, if keys must be unique; else each key once, as its last row counts."""
    found = pa.RecordBatch.from_pydict({"id": [1, 2, 1], "v": pa.array([7, 7, 8], pa.int16())})
    names = ("id", "v")
    if "delete_marker" in options:
        found, names = found.append_column("gone", pa.array([False, True, False])), (*names, "gone")
    plain = encoder_of(planned(keyed=True), WireFormat.YSON, Placement(None)).target
    target = replace(plain, options=Target("//t", **options))
    report = run(task_of(cluster, target, names=names), found)
    hashes = np.frombuffer(report.key_hashes, dtype="V16")
    assert len(hashes) == known
    assert len(set(hashes.tolist())) == min(known, 2)


@pytest.mark.parametrize("claims", [BY_CLAIM, None])
def test_lease_is_renewed_of_what_is_open(cluster, claims):
    """Whichever attempt has opened it; nobody else does."""
    task = task_of(cluster, claims=claims)
    task._renew()
    assert cluster.pinged == []
    run(task_of(cluster), rows(1))
    task._renew()
    assert cluster.pinged == ([BY_CLAIM.opened(cluster).id] if claims else [])


@pytest.mark.parametrize("transaction", [OF_DRIVER, None])
def test_lease_is_renewed_while_a_task_runs_whose_driver_does_not(
    cluster, monkeypatch, transaction
):
    """Four times within each; the driver renews that of its own transaction."""
    intervals, repeated = [], joined.repeated

    def noting(every, call):
        intervals.append(every)
        return repeated(0.001, call)

    def slowly():
        yield rows(1, 2)
        while not cluster.pinged and transaction is None:
            pass
        yield rows(3)

    monkeypatch.setattr(joined, "repeated", noting)
    with task_context(0):
        list(task_of(cluster, transaction=transaction)(slowly()))
    assert intervals == ([] if transaction else [config.LEASE.total_seconds() / 4])
    assert cluster.values() == [1, 2, 3]
