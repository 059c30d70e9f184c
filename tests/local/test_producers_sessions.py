"""Queue producers: sessions, epochs, sequence numbers, in and out of transactions."""

from __future__ import annotations

import pytest
from yt.wrapper import YtResponseError

VALUE = {"name": "v", "type": "string"}


@pytest.fixture
def sticky(cluster):
    """Clients that stay on the first proxy, as a tablet transaction needs."""

    def connect():
        return cluster.client(proxy={"enable_proxy_discovery": False})

    return connect


@pytest.fixture
def queue(client, tmp):
    path = f"{tmp}/q"
    attributes = {"dynamic": True, "schema": [VALUE], "tablet_count": 2}
    client.create("table", path, attributes=attributes)
    client.mount_table(path, sync=True)
    return path


@pytest.fixture
def producer(client, tmp):
    client.create("queue_producer", f"{tmp}/p")
    return f"{tmp}/p"


@pytest.fixture
def open_session(client, producer, queue):
    return lambda name="s", **meta: client.create_queue_producer_session(
        producer, queue, name, **meta
    )


def numbered(*numbers):
    return [{"v": f"{number}", "$sequence_number": number} for number in numbers]


def values(client, queue):
    return sorted(
        (int(row["v"]) for row in client.select_rows(f"v from [{queue}]")),
    )


def test_session_starts_empty_and_its_epoch_grows(open_session):
    """Every further creation fences the one before."""
    assert open_session() == {"epoch": 0, "sequence_number": -1, "user_meta": None}
    assert open_session()["epoch"] == 1
    assert open_session()["epoch"] == 2
    assert open_session("other")["epoch"] == 0


def test_user_meta_is_kept_until_replaced(client, producer, queue, open_session):
    """Both ways to set it replace it whole."""
    assert open_session(user_meta={"a": 1})["user_meta"] == {"a": 1}
    assert open_session()["user_meta"] == {"a": 1}
    client.push_queue_producer(producer, queue, "s", 1, numbered(1), user_meta={"b": 2})
    assert open_session()["user_meta"] == {"b": 2}


def test_repeated_rows_are_skipped(client, producer, queue, open_session):
    """Pushing the same numbers again changes nothing; gaps are fine."""
    open_session()
    push = lambda *numbers: client.push_queue_producer(  # noqa: E731
        producer, queue, "s", 0, numbered(*numbers)
    )
    assert push(1, 5) == {"last_sequence_number": 5, "skipped_row_count": 0}
    assert push(1, 5) == {"last_sequence_number": 5, "skipped_row_count": 2}
    assert push(5, 6, 9) == {"last_sequence_number": 9, "skipped_row_count": 1}
    assert values(client, queue) == [1, 5, 6, 9]
    assert open_session() == {"epoch": 1, "sequence_number": 9, "user_meta": None}


def test_first_number_may_come_with_the_request(raw, client, producer, queue, open_session):
    """Then the rows are counted from it."""
    open_session()

    def push(first, rows):
        parameters = {"producer_path": producer, "queue_path": queue, "session_id": "s"}
        parameters |= {"epoch": 0, "sequence_number": first, "input_format": "json"}
        return raw.command("PUT", "push_queue_producer", parameters, rows)

    assert push(10, b'{"v":"10"}\n{"v":"11"}').json() == {
        "last_sequence_number": 11,
        "skipped_row_count": 0,
    }
    assert push(11, b'{"v":"11"}\n{"v":"12"}').json()["skipped_row_count"] == 1
    assert values(client, queue) == [10, 11, 12]
    both = push(20, b'{"v":"20","$sequence_number":20}')
    assert both.error["code"] == 3103


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([{"v": "x"}], 3103),
        ([{"v": "x", "$sequence_number": 1}, {"v": "y"}], 3103),
        (numbered(-5), 3103),
        (numbered(2, 2), 3103),
        (numbered(2, 1), 3103),
        ([{"v": "x", "$sequence_number": "one"}], 1),
        ([{"v": "x", "$sequence_number": 1, "w": 1}], 307),
    ],
)
def test_bad_sequence_numbers_are_refused(client, producer, queue, open_session, rows, code):
    """Every row has one number, and they grow."""
    open_session()
    with pytest.raises(YtResponseError) as caught:
        client.push_queue_producer(producer, queue, "s", 0, rows)
    assert caught.value.contains_code(code)
    assert values(client, queue) == []


def test_epoch_must_be_the_current_one(client, producer, queue, open_session):
    """An older epoch is a zombie, a newer one was never given out."""
    open_session()
    open_session()
    for epoch, code in ((0, 3102), (2, 3101)):
        with pytest.raises(YtResponseError) as caught:
            client.push_queue_producer(producer, queue, "s", epoch, numbered(1))
        assert caught.value.contains_code(code)
    client.push_queue_producer(producer, queue, "s", 1, numbered(1))
    assert values(client, queue) == [1]


def test_push_into_an_unknown_session_is_refused(client, producer, queue, open_session):
    """Sessions are created first, and a removed one forgets its numbers."""
    with pytest.raises(YtResponseError, match="Unknown queue producer session"):
        client.push_queue_producer(producer, queue, "s", 0, numbered(1))
    open_session()
    client.push_queue_producer(producer, queue, "s", 0, numbered(1))
    client.remove_queue_producer_session(producer, queue, "s")
    with pytest.raises(YtResponseError, match="Unknown queue producer session"):
        client.push_queue_producer(producer, queue, "s", 0, numbered(2))
    assert open_session()["sequence_number"] == -1
    client.push_queue_producer(producer, queue, "s", 0, numbered(1))
    assert values(client, queue) == [1, 1]


def test_wrong_tables_are_refused(client, tmp, producer, queue):
    """A queue is ordered, a producer sorted and of the right schema, and both exist."""
    create = client.create_queue_producer_session
    with pytest.raises(YtResponseError, match="is not sorted"):
        create(queue, queue, "s")
    client.create("queue_consumer", f"{tmp}/c")
    with pytest.raises(YtResponseError, match="schema of a queue producer"):
        create(f"{tmp}/c", queue, "s")
    with pytest.raises(YtResponseError, match="does not point to a valid producer"):
        create(f"{tmp}/nothing", queue, "s")
    create(producer, queue, "s")
    with pytest.raises(YtResponseError, match="is not ordered"):
        client.push_queue_producer(producer, producer, "s", 0, [])
    with pytest.raises(YtResponseError, match="does not point to a valid queue"):
        client.push_queue_producer(producer, f"{tmp}/nothing", "s", 0, [])


def test_rows_name_their_tablet_or_share_one(client, producer, queue, open_session):
    """As with any append."""
    open_session()
    rows = [{**row, "$tablet_index": 1} for row in numbered(1, 2)]
    client.push_queue_producer(producer, queue, "s", 0, rows)
    assert client.get_tablet_infos(queue, [1])["tablets"][0]["total_row_count"] == 2


def test_several_pushes_of_a_transaction_build_on_each_other(
    client, sticky, producer, queue, open_session
):
    """The transaction remembers its own numbers although nothing is visible."""
    open_session()
    member = sticky()
    with member.Transaction(type="tablet"):
        push = lambda *numbers: member.push_queue_producer(  # noqa: E731
            producer, queue, "s", 0, numbered(*numbers)
        )
        assert push(1, 2)["skipped_row_count"] == 0
        assert push(2, 3) == {"last_sequence_number": 3, "skipped_row_count": 1}
        assert values(client, queue) == []
    assert values(client, queue) == [1, 2, 3]
    assert open_session()["sequence_number"] == 3


def test_of_two_transactions_in_one_session_one_commits(
    client, sticky, producer, queue, open_session
):
    """Both push; the second commit meets the session's row."""
    open_session()
    left, right = sticky(), sticky()
    first, second = left.Transaction(type="tablet"), right.Transaction(type="tablet")
    first.__enter__()
    second.__enter__()
    left.push_queue_producer(producer, queue, "s", 0, numbered(1))
    right.push_queue_producer(producer, queue, "s", 0, numbered(1))
    second.__exit__(None, None, None)
    with pytest.raises(YtResponseError) as caught:
        first.__exit__(None, None, None)
    assert caught.value.contains_code(1700)
    assert values(client, queue) == [1]


def test_zombie_is_fenced_at_its_commit(client, sticky, producer, queue, open_session):
    """An epoch that grew while a transaction was open makes its commit fail."""
    open_session()
    member = sticky()
    zombie = member.Transaction(type="tablet")
    zombie.__enter__()
    member.push_queue_producer(producer, queue, "s", 0, numbered(1))
    assert open_session()["epoch"] == 1
    member.push_queue_producer(producer, queue, "s", 0, numbered(2))
    with pytest.raises(YtResponseError) as caught:
        zombie.__exit__(None, None, None)
    assert caught.value.contains_code(1700)
    with member.Transaction(type="tablet"), pytest.raises(YtResponseError) as caught:
        member.push_queue_producer(producer, queue, "s", 0, numbered(1))
    assert caught.value.contains_code(3102)
    assert values(client, queue) == []


def test_session_row_is_ordinary_data(client, producer, queue, open_session):
    """Tools may read it and set it."""
    open_session()
    ((row),) = client.select_rows(f"* from [{producer}]")
    assert (row["queue_cluster"], row["queue_path"], row["session_id"]) == ("local", queue, "s")
    row["sequence_number"] = 100
    client.insert_rows(producer, [row])
    answer = client.push_queue_producer(producer, queue, "s", 0, numbered(50, 101))
    assert answer == {"last_sequence_number": 101, "skipped_row_count": 1}


def test_session_is_created_outside_of_the_transaction(client, sticky, producer, queue):
    """The command takes no transaction: it is effective at once and survives an abort."""
    member = sticky()
    transaction_id = member.start_transaction(type="tablet")
    with member.Transaction(transaction_id=transaction_id, ping=False):
        member.create_queue_producer_session(producer, queue, "s")
    member.abort_transaction(transaction_id)
    assert client.create_queue_producer_session(producer, queue, "s")["epoch"] == 1
