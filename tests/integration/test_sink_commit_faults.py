"""Commits whose answer is lost, late or refused: the ledger tells what became of them."""

import pytest

from tests.flows import AGGREGATION
from tests.tiers import NIGHTLY, first_of
from yt_exactly_once import Event

COMMIT = "commit_transaction"

LOSSY_ROWS = 10_000 if NIGHTLY else 4_000


@pytest.mark.parametrize("fault", [{"action": "lose_answer"}, {"action": "late_error", "code": 1}])
def test_commit_applied_without_a_usable_answer_is_found_in_the_ledger(stream, faults, fault):
    """The batch counts as committed in its first attempt, and its rows are there once.

    With code 1, as `RunPeriodicPings` in `ytlib/transaction_client/transaction_manager.cpp`.
    """
    flow = stream(rows=3_000)
    faults.inject(**fault, command=COMMIT, after=1, count=2)
    told = flow.run()
    assert told.count(Event.COMMIT_OUTCOME_UNKNOWN) == 2
    assert told.count(Event.COMMIT_OUTCOME_RESOLVED) == 2
    assert {fields["attempts"] for fields in told.of(Event.BATCH_COMMITTED)} == {1}
    flow.assert_exact()


@pytest.mark.further
@pytest.mark.parametrize("query", first_of([None, AGGREGATION]), ids=["stateless", "aggregation"])
def test_lossy_network_changes_nothing(stream, faults, query):
    """Answers and requests vanish at random, of every command, over many batches."""
    flow = stream(
        *filter(None, [query]), rows=LOSSY_ROWS, rows_per_partition=250, is_sorted=bool(query)
    )
    faults.inject("lose_answer", count=None, probability=0.03, seed=1)
    faults.inject("lose_request", count=None, probability=0.03, seed=2)
    faults.inject("unavailable", count=None, probability=0.03, seed=3)
    told = flow.run()
    assert told.count(Event.RETRY_SCHEDULED) > 0
    assert min(rule["hits"] for rule in faults.faults()) > 0
    faults.clear_faults()
    flow.assert_exact()
