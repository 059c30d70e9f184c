"""What an exactly-once sink over HTTP trips over; each fact as a client without retries sees it."""

from __future__ import annotations

import pytest
from yt import yson
from yt.wrapper import YtResponseError

from tests.contract.tables import create

KEY = {"name": "k", "type": "int64", "sort_order": "ascending"}
VALUE = {"name": "v", "type": "string"}


@pytest.fixture
def queue(client, tmp):
    """A queue of one partition with three rows."""
    create(client, f"{tmp}/queue", [VALUE])
    client.insert_rows(f"{tmp}/queue", [{"v": "a"}, {"v": "b"}, {"v": "c"}])
    return f"{tmp}/queue"


@pytest.fixture
def consumer(client, tmp, queue):
    client.create("queue_consumer", f"{tmp}/consumer")
    client.register_queue_consumer(queue, f"{tmp}/consumer", vital=True)
    return f"{tmp}/consumer"


@pytest.fixture
def table(client, tmp):
    create(client, f"{tmp}/table", [KEY, VALUE])
    return f"{tmp}/table"


def _refused(code, call, *args, **kwargs):
    with pytest.raises(YtResponseError) as caught:
        call(*args, **kwargs)
    assert caught.value.contains_code(code)
    return caught.value


def test_insert_answers_with_an_empty_body(raw, table):
    """It counts as structured, and yet there is nothing to parse."""
    body = yson.dumps([{"k": 1, "v": "x"}], yson_type="list_fragment")
    answer = raw.command("PUT", "insert_rows", {"path": table, "input_format": "yson"}, body)
    assert (answer.status, answer.body) == (200, b"")


def test_missing_columns_become_null(client, table):
    """Nobody complains: the writer has to compare schemas itself."""
    client.insert_rows(table, [{"k": 1}])
    assert list(client.lookup_rows(table, [{"k": 1}])) == [{"k": 1, "v": None}]


def test_repeated_advance_tells_that_the_first_one_worked(client, queue, consumer):
    """A lost answer and a real conflict have one code; the current offset tells them apart."""
    client.advance_queue_consumer(consumer, queue, 0, 0, 2)
    error = _refused(3100, client.advance_queue_consumer, consumer, queue, 0, 0, 2)
    assert error.find_matching_error(3100).attributes["current_offset"] == 2


def test_offset_may_go_back_and_beyond_the_end(client, queue, consumer):
    """Only `old_offset` is ever checked."""
    for offset in (3, 1, 100):
        client.advance_queue_consumer(consumer, queue, 0, None, offset)
        (row,) = client.select_rows(f"[offset] from [{consumer}]")
        assert row["offset"] == offset


def test_pull_inside_a_transaction_reads_the_newest_rows(client, sticky, queue):
    """Pulls have no part in transactions: neither their start nor their writes count."""
    inside = sticky()
    transaction_id = inside.start_transaction(type="tablet")
    client.insert_rows(queue, [{"v": "late"}])
    with inside.Transaction(transaction_id=transaction_id):
        inside.insert_rows(queue, [{"v": "own"}])
        pulled = [row["v"] for row in inside.pull_queue(queue, 0, 0)]
    inside.abort_transaction(transaction_id)
    assert pulled == ["a", "b", "c", "late"]


def test_trim_inside_a_transaction_happens_at_once(client, sticky, queue):
    """An abort does not bring the rows back."""
    inside = sticky()
    transaction_id = inside.start_transaction(type="tablet")
    with inside.Transaction(transaction_id=transaction_id):
        inside.trim_rows(queue, 0, 2)
    inside.abort_transaction(transaction_id)
    assert [row["v"] for row in client.pull_queue(queue, 0, 0)] == ["c"]


def test_conflict_code_lies_deep_in_the_error(client, sticky, table):
    """The outermost error of a commit has code 1: who looks there finds nothing."""
    inside = sticky()
    transaction_id = inside.start_transaction(type="tablet")
    with inside.Transaction(transaction_id=transaction_id):
        inside.insert_rows(table, [{"k": 1, "v": "mine"}])
    client.insert_rows(table, [{"k": 1, "v": "theirs"}])
    error = _refused(1700, inside.commit_transaction, transaction_id)
    assert error.error["code"] == 1


def test_winner_of_a_row_may_be_an_earlier_attempt_of_oneself(sticky, table):
    """1700 says that somebody was faster, not who: read the row before deciding."""
    first, second = sticky(), sticky()
    ids = [each.start_transaction(type="tablet") for each in (first, second)]
    for each, transaction_id in zip((first, second), ids, strict=True):
        with each.Transaction(transaction_id=transaction_id):
            each.insert_rows(table, [{"k": 1, "v": "attempt"}])
    first.commit_transaction(ids[0])
    _refused(1700, second.commit_transaction, ids[1])
    assert list(second.lookup_rows(table, [{"k": 1}])) == [{"k": 1, "v": "attempt"}]


def test_retried_append_without_a_transaction_doubles_rows(client, queue):
    """The server knows nothing of an earlier try."""
    for _ in range(2):
        client.insert_rows(queue, [{"v": "again"}])
    assert [row["v"] for row in client.pull_queue(queue, 3, 0)] == ["again", "again"]
