"""One attempt of a task becomes the owner of its partition, and one transaction that of all tasks."""

import pytest

from yt_exactly_once import RetryPolicy
from yt_exactly_once.commit import claims
from yt_exactly_once.commit.claims import Claims, Plan
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.errors import (
    ClusterUnavailableError,
    CommitOutcomeUnknownError,
    ConflictError,
    RepeatedTaskError,
    RetriesExhaustedError,
    TransactionLostError,
)

TABLE = "//ledger_claims"


class Cluster:
    """The table of claims; `answers` are what the next commits say, and whether they are applied."""

    def __init__(self, *answers, breaks=None):
        self.rows, self.answers, self.breaks = {}, list(answers), breaks
        self.begun = self.left = 0
        self.aborted = []

    def lookup(self, table, keys):
        assert table == TABLE
        return [self.rows.get(tuple(key.values())) for key in keys]

    def begin(self, _lease):
        self.begun += 1
        return Transaction(self, dict(self.rows), str(self.begun))

    def unpin(self):
        self.left += 1


class Transaction:
    """It reads the table as of its start."""

    proxy = "localhost:1"

    def __init__(self, cluster, snapshot, number):
        self.cluster, self.snapshot, self.id, self.written = cluster, snapshot, number, {}

    def lookup(self, table, keys):
        assert table == TABLE
        if self.cluster.breaks is not None:
            raise self.cluster.breaks
        return [self.snapshot.get(tuple(key.values())) for key in keys]

    def insert(self, _table, rows):
        for row in rows:
            key = row["transaction_id"], row["target"], row["partition"]
            self.written[key] = row

    def commit(self, written):
        assert written == [TABLE]
        error, is_applied = self.cluster.answers.pop(0) if self.cluster.answers else (None, True)
        if any(self.cluster.rows.get(key) != self.snapshot.get(key) for key in self.written):
            raise ConflictError("somebody was first")
        if is_applied:
            self.cluster.rows |= self.written
        if error is not None:
            raise error

    def abort(self):
        self.cluster.aborted.append(self.id)


def silent(*_, **__):
    """Hear nothing."""


def take(cluster, owner="one", *, partition=0, transaction="1-2", attempts=3):
    Claims(TABLE, transaction, "//t").take(
        cluster, partition, owner, RetryPolicy(attempts=attempts), silent
    )


def open_for_all(cluster, plan="plan"):
    return Claims(TABLE, plan, "//t").open(cluster, RetryPolicy(attempts=3), silent)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)


def test_first_attempt_owns_the_partition_and_every_other_one_is_refused():
    """Also once more, after its own answer was lost. Other partitions and transactions are free."""
    cluster = Cluster()
    take(cluster)
    take(cluster)
    with pytest.raises(RepeatedTaskError, match="another attempt of it, one, has claimed"):
        take(cluster, "other")
    take(cluster, "other", partition=1)
    take(cluster, "other", transaction="1-3")
    assert [row["owner"] for row in cluster.rows.values()] == ["one", "other", "other"]
    assert len(cluster.aborted) == 2


@pytest.mark.parametrize("is_applied", [True, False])
def test_claim_without_an_answer_is_looked_up_by_the_next_try(is_applied):
    """Over another proxy."""
    cluster = Cluster((CommitOutcomeUnknownError("no answer"), is_applied))
    take(cluster)
    assert cluster.begun == 2
    assert cluster.left == 1
    with pytest.raises(RepeatedTaskError):
        take(cluster, "other")


def slowed(cluster, at, do):
    """Let something happen right after a transaction has begun, by its number."""
    begin = cluster.begin

    def late(lease):
        transaction = begin(lease)
        if transaction.id == str(at):
            do()
        return transaction

    cluster.begin = late


def test_claim_that_comes_second_is_refused():
    """The owner committed after the other attempt had begun."""
    cluster = Cluster()
    slowed(cluster, 1, lambda: take(cluster, "faster"))
    with pytest.raises(RepeatedTaskError, match="faster"):
        take(cluster, "slower")


@pytest.mark.parametrize("error", [ClusterUnavailableError("away"), TransactionLostError("gone")])
def test_attempt_that_cannot_know_its_owner_may_not_write(error):
    """It never asks for rows: the error leaves the task. Each try takes another proxy."""
    cluster = Cluster(breaks=error)
    with pytest.raises(RetriesExhaustedError):
        take(cluster)
    assert (cluster.begun, len(cluster.aborted), cluster.left) == (3, 3, 3)


def test_user_who_can_claim_keeps_no_partition_from_the_tasks():
    """What is tried out is none of theirs."""
    cluster = Cluster()
    Claims(TABLE, "1-2", "//t").try_out(cluster, RetryPolicy(attempts=1), silent)
    take(cluster)
    assert len(cluster.rows) == 2
    assert Claims(TABLE, "1-2", "//t").opened(cluster) is None


def test_first_attempt_opens_the_transaction_of_a_plan_for_all():
    """Later ones find it, and begin none. Another plan has another one."""
    cluster = Cluster()
    assert Claims(TABLE, "plan", "//t").opened(cluster) is None
    opened = open_for_all(cluster)
    assert opened == OpenTransaction("1", "localhost:1")
    assert open_for_all(cluster) == Claims(TABLE, "plan", "//t").opened(cluster) == opened
    assert cluster.begun == 2
    assert open_for_all(cluster, "another plan") != opened
    take(cluster, transaction="plan")
    assert cluster.aborted == []


def test_attempt_that_opens_second_takes_the_transaction_of_the_first():
    """It ends its own, which nobody knows."""
    cluster, won = Cluster(), []
    slowed(cluster, 1, lambda: won.append(open_for_all(cluster)))
    assert [open_for_all(cluster)] == won
    assert "1" in cluster.aborted
    assert won[0].id not in cluster.aborted


def test_attempt_that_cannot_know_the_transaction_ends_its_own():
    """Somebody might commit it without knowing what it has."""
    cluster = Cluster(breaks=ClusterUnavailableError("away"))
    with pytest.raises(RetriesExhaustedError):
        open_for_all(cluster)
    assert cluster.aborted[-1] == "1"


def test_claims_outlive_every_transaction_that_relies_on_them():
    """They stay for a day, and the driver relies on them for half of it. The table then empties itself."""
    assert claims.CLAIMS_ATTRIBUTES == {
        "min_data_versions": 0,
        "max_data_versions": 1,
        "min_data_ttl": 86_400_000,
        "max_data_ttl": 86_400_000,
    }
    assert claims.HOLD.total_seconds() == 43_200


def test_age_of_a_transaction_is_counted_from_its_begin(monkeypatch):
    monkeypatch.setattr(claims.time, "monotonic", lambda: 107.5)
    assert claims.seconds_since(100.0) == 7.5


def test_claim_names_all_that_it_is_about():
    """The table takes no row without one of its columns: a claim of nobody would keep everybody out."""
    assert all(column["required"] for column in claims.CLAIMS_SCHEMA)


def test_plans_differ_and_grow_old(monkeypatch):
    """By the clock of the driver, in whatever process."""
    monkeypatch.setattr(claims.time, "time", lambda: 100.0)
    one, other = Plan.make(), Plan.make()
    assert one.id != other.id
    monkeypatch.setattr(claims.time, "time", lambda: 107.5)
    assert one.age == other.age == 7.5
