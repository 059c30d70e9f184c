"""Queue producers: sessions, epochs, sequence numbers, in and out of transactions."""

from contextlib import nullcontext
from io import BytesIO

import pyarrow as pa
import pytest
from yt.wrapper import YtResponseError
from yt.wrapper.format import ArrowFormat

from tests.arrow_streams import stream_of
from tests.contract.tables import VALUE, create, refused


@pytest.fixture
def queue(client, tmp):
    return create(client, f"{tmp}/q", [VALUE], tablet_count=2)


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
    return sorted(int(row["v"]) for row in client.select_rows(f"v from [{queue}]"))


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
        (numbered(-5), 3103),
        (numbered(2, 2), 3103),
        ([*numbered(2), {"v": "3"}], 3103),
        (numbered(2, 1), 3103),
        ([{"v": "x", "$sequence_number": "one"}], 1),
        ([{"v": "x", "$sequence_number": 2, "w": 1}], 307),
    ],
)
def test_bad_sequence_numbers_are_refused(client, producer, queue, open_session, rows, code):
    """Every row has one number, and they grow. What is refused leaves session and queue alone."""
    open_session()
    client.push_queue_producer(producer, queue, "s", 0, numbered(0, 1))
    with refused(code):
        client.push_queue_producer(producer, queue, "s", 0, rows)
    assert stored(client, producer) == {(queue, "s"): (1, 0, None)}
    assert values(client, queue) == [0, 1]


def test_numbers_of_arrow_rows_count_as_those_of_others(client, producer, queue, open_session):
    """Good ones are skipped or written, and bad ones refused."""

    def push(*numbers):
        rows = pa.table({"v": [f"{number}".encode() for number in numbers]})
        rows = rows.append_column("$sequence_number", pa.array(numbers, pa.int64()))
        body = BytesIO(stream_of(rows))
        answer = client.push_queue_producer(
            producer, queue, "s", 0, body, input_format=ArrowFormat(), raw=True
        )
        return answer["last_sequence_number"], answer["skipped_row_count"]

    open_session()
    assert push(3, 7) == (7, 0)
    assert push(7, 8, 2**62) == (2**62, 1)
    for bad in ((-5,), (2**62 + 1, 2**62 + 1), (2, 1), (None,)):
        with refused(3103):
            push(*bad)
    assert values(client, queue) == [3, 7, 8, 2**62]


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
    client.create("queue_consumer", f"{tmp}/c")
    for path, message in (
        (queue, "is not sorted"),
        (f"{tmp}/c", "schema of a queue producer"),
        (f"{tmp}/nothing", "does not point to a valid producer"),
    ):
        with pytest.raises(YtResponseError, match=message):
            client.create_queue_producer_session(path, queue, "s")
    client.create_queue_producer_session(producer, queue, "s")
    for path, message in (
        (producer, "is not ordered"),
        (f"{tmp}/nothing", "does not point to a valid queue"),
    ):
        with pytest.raises(YtResponseError, match=message):
            client.push_queue_producer(producer, path, "s", 0, [])


def test_several_pushes_of_a_transaction_build_on_each_other(
    client, sticky, producer, queue, open_session
):
    """The transaction remembers its own numbers, of each session, although nothing is visible."""
    open_session()
    open_session("other")
    member = sticky()
    with member.Transaction(type="tablet"):
        push = lambda *numbers: member.push_queue_producer(  # noqa: E731
            producer, queue, "s", 0, numbered(*numbers)
        )
        assert push(1, 2)["skipped_row_count"] == 0
        assert push(2, 3) == {"last_sequence_number": 3, "skipped_row_count": 1}
        member.push_queue_producer(producer, queue, "other", 0, numbered(1))
        assert values(client, queue) == []
    assert values(client, queue) == [1, 1, 2, 3]
    assert stored(client, producer) == {(queue, "other"): (1, 0, None), (queue, "s"): (3, 0, None)}


@pytest.mark.parametrize("other", ["s", "other"])
def test_of_two_transactions_in_one_session_one_commits(
    client, sticky, producer, queue, open_session, other
):
    """Both push; the second commit meets the session's row, unless that is another one's."""
    for name in {"s", other}:
        open_session(name)
    left, right = sticky(), sticky()
    first, second = left.Transaction(type="tablet"), right.Transaction(type="tablet")
    first.__enter__()
    second.__enter__()
    left.push_queue_producer(producer, queue, "s", 0, numbered(1))
    right.push_queue_producer(producer, queue, other, 0, numbered(1))
    second.__exit__(None, None, None)
    with refused(1700) if other == "s" else nullcontext():
        first.__exit__(None, None, None)
    assert stored(client, producer) == {(queue, name): (1, 0, None) for name in {"s", other}}
    assert values(client, queue) == [1] * len({"s", other})


def test_session_is_created_outside_of_the_transaction(client, sticky, producer, queue):
    """The command takes no transaction: it is effective at once and survives an abort."""
    member = sticky()
    transaction_id = member.start_transaction(type="tablet")
    with member.Transaction(transaction_id=transaction_id, ping=False):
        member.create_queue_producer_session(producer, queue, "s")
    member.abort_transaction(transaction_id)
    assert client.create_queue_producer_session(producer, queue, "s")["epoch"] == 1


def stored(client, producer):
    """Return every session: its key, number, epoch and meta."""
    return {
        (row["queue_path"], row["session_id"]): (
            row["sequence_number"],
            row["epoch"],
            row["user_meta"],
        )
        for row in client.select_rows(f"* from [{producer}]")
    }


def test_session_continues_from_what_its_row_says(
    client, producer, queue, open_session, cluster_name
):
    """It is ordinary data, which tools may set, until it is removed; then epochs begin again."""
    meta = {"foo": [1, 2, 3], "bar": {"baz": True}}
    assert open_session(user_meta=meta)["user_meta"] == meta
    row = {"queue_cluster": cluster_name, "queue_path": queue, "session_id": "s"}
    client.insert_rows(producer, [{**row, "sequence_number": 100, "epoch": 200}], update=True)
    answer = open_session(user_meta=[1, 2, 3])
    assert answer == {"sequence_number": 100, "epoch": 201, "user_meta": [1, 2, 3]}
    assert stored(client, producer) == {(queue, "s"): (100, 201, [1, 2, 3])}
    assert open_session() == {"sequence_number": 100, "epoch": 202, "user_meta": [1, 2, 3]}
    rows = numbered(50, 101)
    answer = client.push_queue_producer(producer, queue, "s", 202, rows, user_meta={"b": 2})
    assert answer == {"last_sequence_number": 101, "skipped_row_count": 1}
    assert stored(client, producer) == {(queue, "s"): (101, 202, {"b": 2})}
    client.remove_queue_producer_session(producer, queue, "s")
    assert stored(client, producer) == {}
    assert open_session() == {"sequence_number": -1, "epoch": 0, "user_meta": None}


def test_sessions_of_other_names_and_queues_are_apart(client, tmp, producer, queue):
    """Each has epochs, meta and an end of its own."""
    other = f"{tmp}/other"
    create(client, other, [VALUE])
    sessions = {(queue, "a"): 1, (other, "a"): 3, (queue, "b"): 2}
    for path, name in sessions:
        client.create_queue_producer_session(producer, path, name, user_meta=f"{path} {name}")
    for (path, name), times in sessions.items():
        for epoch in range(1, times + 1):
            answer = client.create_queue_producer_session(producer, path, name)
            assert answer["epoch"] == epoch
    assert stored(client, producer) == {
        (path, name): (-1, times, f"{path} {name}") for (path, name), times in sessions.items()
    }
    while sessions:
        client.remove_queue_producer_session(producer, *sessions.popitem()[0])
        assert stored(client, producer).keys() == sessions.keys()


def test_session_created_twice_by_one_mutation_is_created_once(raw, producer, queue, open_session):
    """The answer is that of the first; another mutation raises the epoch."""
    assert open_session()["epoch"] == 0
    for mutation_id, epoch in (("1-1-1-1", 1), ("1-1-1-1", 1), ("1-1-1-2", 2)):
        parameters = {"producer_path": producer, "queue_path": queue, "session_id": "s"}
        parameters["mutation_id"] = mutation_id
        answer = raw.command("POST", "create_queue_producer_session", parameters)
        assert answer.json()["epoch"] == epoch


def test_one_push_reaches_several_tablets(client, producer, queue, open_session):
    """Where every row says it belongs."""
    open_session()
    rows = [{**row, "$tablet_index": index} for index, row in enumerate(numbered(0, 2))]
    answer = client.push_queue_producer(producer, queue, "s", 0, rows)
    assert answer == {"last_sequence_number": 2, "skipped_row_count": 0}
    for tablet, value in enumerate(("0", "2")):
        (row,) = client.select_rows(f"v from [{queue}] where [$tablet_index] = {tablet}")
        assert row["v"] == value
