"""What was tried of a batch, as the next run finds it, and where that leads."""

import pytest

from tests.unit.test_claims import TABLE, Cluster
from yt_exactly_once.commit.claims import Claims
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.delivery.route import AUTO, LARGE, Facts, Way, choose_route
from yt_exactly_once.delivery.tried import Tried
from yt_exactly_once.errors import (
    ClusterUnavailableError,
    ConflictError,
    TasksRefusedError,
    TransactionTooOldError,
)

BY_TASKS = Tried("query", "//t", 7, SentBy.TASKS)
BY_DRIVER = Tried("query", "//t", 7, SentBy.DRIVER)


@pytest.mark.parametrize(
    "tried",
    [
        BY_TASKS,
        BY_DRIVER.failed(ConflictError("x")),
        BY_TASKS.failed(TasksRefusedError("8 tasks cannot write into 2 tablets in order")),
    ],
)
def test_what_is_kept_is_what_was_tried(tried):
    """In the place of what was kept before, and without a claim of any plan."""
    cluster = Cluster()
    assert Tried.read(cluster, TABLE, "query", "//t") is None
    BY_DRIVER.keep(cluster, TABLE)
    tried.keep(cluster, TABLE)
    assert Tried.read(cluster, TABLE, "query", "//t") == tried
    assert Tried.read(cluster, TABLE, "another query", "//t") is None
    assert Claims(TABLE, "query", "//t").opened(cluster) is None


def test_what_cannot_be_kept_ends_its_transaction():
    """The caller decides what follows."""
    cluster = Cluster()
    begin = cluster.begin

    def broken(lease):
        transaction = begin(lease)
        transaction.insert = raising
        return transaction

    def raising(*_):
        raise ClusterUnavailableError("away")

    cluster.begin = broken
    with pytest.raises(ClusterUnavailableError):
        BY_TASKS.keep(cluster, TABLE)
    assert cluster.aborted == ["1"]


@pytest.mark.parametrize("sent_by", [AUTO, "tasks"])
@pytest.mark.parametrize(
    ("tried", "size", "way"),
    [
        # The same way again, unless it has failed.
        (BY_TASKS, 0, Way.JOIN),
        (BY_TASKS.failed(ConflictError("x")), LARGE, Way.COLLECT),
        (BY_DRIVER, LARGE, Way.COLLECT),
        (BY_DRIVER.failed(ConflictError("x")), 0, Way.JOIN),
    ],
)
def test_way_that_has_failed_leaves_the_other_one(tried, size, way, sent_by):
    """Whatever the size of the batch before, and for this batch alone."""
    facts = Facts(one_transaction=True, bytes_before=size, sent_by=sent_by)
    assert choose_route(tried.add_to(facts, 7)).way is way
    assert tried.add_to(facts, 8) == facts


@pytest.mark.parametrize(
    ("error", "after_all"),
    [(TasksRefusedError("no"), Way.COLLECT), (TransactionTooOldError("no"), Way.JOIN)],
)
def test_reason_that_lasts_keeps_later_batches_from_the_tasks(error, after_all):
    """Where the driver cannot send one either, tasks try it, unless it is known that they cannot."""
    facts = Facts(one_transaction=True, bytes_before=LARGE)
    tried = BY_TASKS.failed(error)
    assert choose_route(tried.add_to(facts, 8)).way is Way.COLLECT
    assert "no" in tried.lasting
    assert BY_TASKS.failed(ConflictError("x")).lasting == ""
    later = Tried("query", "//t", 8, SentBy.DRIVER, has_failed=True, lasting=tried.lasting)
    assert choose_route(later.add_to(facts, 8)).way is after_all
