"""How many requests a batch costs: the number that a distant cluster multiplies."""

import pytest

from tests.tiers import first_of
from yt_exactly_once import Event


@pytest.mark.parametrize("partitions", first_of([6, 1]))
def test_small_batch_takes_seven_requests_whatever_its_partitions(stream, cluster, partitions):
    """Begin, two look-ups, rows, consumer, ledger entry, commit; nothing of Cypress."""
    flow = stream(rows=30, partitions=partitions, rows_per_partition=10)
    computed, spent = {}, {}

    def count(event, fields):
        if event == Event.BATCH_COMPUTED:
            computed[fields["batch"]] = cluster.request_counts()
        elif event == Event.BATCH_COMMITTED:
            spent[fields["batch"]] = cluster.request_counts() - computed[fields["batch"]]

    flow.run(count)
    flow.assert_exact()
    # In the first one every connection learns the commands of its proxy.
    assert [spent[batch].total() for batch in (1, 2)] == [7, 7]
    assert {path.rpartition("/")[2] for path in spent[2]} == {
        "start_transaction",
        "lookup_rows",
        "insert_rows",
        "commit_transaction",
    }
