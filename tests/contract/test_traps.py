"""What an exactly-once sink over HTTP trips over; each fact as a client without retries sees it."""

import pytest

from tests.contract.tables import VALUE, create


@pytest.fixture
def queue(client, tmp):
    """A queue of one partition with three rows."""
    create(client, f"{tmp}/queue", [VALUE])
    client.insert_rows(f"{tmp}/queue", [{"v": "a"}, {"v": "b"}, {"v": "c"}])
    return f"{tmp}/queue"


def test_trim_inside_a_transaction_happens_at_once(client, sticky, queue):
    """An abort does not bring the rows back."""
    inside = sticky()
    transaction_id = inside.start_transaction(type="tablet")
    with inside.Transaction(transaction_id=transaction_id):
        inside.trim_rows(queue, 0, 2)
    inside.abort_transaction(transaction_id)
    assert [row["v"] for row in client.pull_queue(queue, 0, 0)] == ["c"]


def test_retried_append_without_a_transaction_doubles_rows(client, queue):
    """The server knows nothing of an earlier try."""
    for _ in range(2):
        client.insert_rows(queue, [{"v": "again"}])
    assert [row["v"] for row in client.pull_queue(queue, 3, 0)] == ["again", "again"]
