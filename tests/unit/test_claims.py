"""One attempt of a task becomes the owner of its partition, whatever the cluster answers."""

import pytest

from yt_exactly_once import RetryPolicy
from yt_exactly_once.commit.claims import Claim
from yt_exactly_once.errors import (
    ClusterUnavailableError,
    CommitOutcomeUnknownError,
    ConflictError,
    RepeatedTaskError,
    RetriesExhaustedError,
)

TABLE = "//ledger_claims"


class Cluster:
    """The table of claims; `answers` are what the next commits say, and whether they are applied."""

    def __init__(self, *answers, breaks=None):
        self.rows, self.answers, self.breaks = {}, list(answers), breaks
        self.begun = self.aborted = self.left = 0

    def begin(self, _lease):
        self.begun += 1
        return Transaction(self, dict(self.rows))

    def unpin(self):
        self.left += 1


class Transaction:
    """It reads the table as of its start."""

    def __init__(self, cluster, snapshot):
        self.cluster, self.snapshot, self.written = cluster, snapshot, {}

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
        self.cluster.aborted += 1


def take(cluster, owner="one", *, partition=0, transaction="1-2", attempts=3):
    claim = Claim(transaction, "//t", partition, owner)
    policy = RetryPolicy(attempts=attempts)
    claim.take(cluster, TABLE, policy, lambda *_, **__: None)


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
    assert cluster.aborted == 2


@pytest.mark.parametrize("is_applied", [True, False])
def test_claim_without_an_answer_is_looked_up_by_the_next_try(is_applied):
    """Over another proxy."""
    cluster = Cluster((CommitOutcomeUnknownError("no answer"), is_applied))
    take(cluster)
    assert cluster.begun == 2
    assert cluster.left == 1
    with pytest.raises(RepeatedTaskError):
        take(cluster, "other")


def test_claim_that_comes_second_is_refused():
    """The owner committed after the other attempt had begun."""
    cluster = Cluster()
    begin = cluster.begin

    def late(lease):
        transaction = begin(lease)
        if cluster.begun == 1:
            take(cluster, "faster")
        return transaction

    cluster.begin = late
    with pytest.raises(RepeatedTaskError, match="faster"):
        take(cluster, "slower")


def test_attempt_that_cannot_know_its_owner_may_not_write():
    """It never asks for rows: the error leaves the task."""
    cluster = Cluster(breaks=ClusterUnavailableError("away"))
    with pytest.raises(RetriesExhaustedError):
        take(cluster)
    assert (cluster.begun, cluster.aborted, cluster.left) == (3, 3, 3)
