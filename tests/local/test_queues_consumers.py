"""Consumers: registrations, offsets, and the trimming that follows them."""

from __future__ import annotations

import pytest
from yt.wrapper import YtResponseError

VALUE = {"name": "v", "type": "string"}
SYSTEM = [
    {"name": "$timestamp", "type": "uint64"},
    {"name": "$cumulative_data_weight", "type": "int64"},
]


@pytest.fixture
def sticky(cluster):
    """Clients that stay on the first proxy, as a tablet transaction needs."""

    def connect():
        return cluster.client(proxy={"enable_proxy_discovery": False})

    return connect


@pytest.fixture
def queue(client, tmp):
    """A queue with ten rows in the first of two partitions."""
    path = f"{tmp}/q"
    attributes = {"dynamic": True, "schema": [VALUE, *SYSTEM], "tablet_count": 2}
    client.create("table", path, attributes=attributes)
    client.mount_table(path, sync=True)
    client.insert_rows(path, [{"v": f"{index}", "$tablet_index": 0} for index in range(10)])
    return path


@pytest.fixture
def consumer(client, tmp, queue):
    """A registered consumer."""
    client.create("queue_consumer", f"{tmp}/c")
    client.register_queue_consumer(queue, f"{tmp}/c", vital=True)
    return f"{tmp}/c"


def pull(client, consumer, queue, offset=None, partition=0, **limits):
    rows = client.pull_queue_consumer(
        consumer, queue, offset=offset, partition_index=partition, **limits
    )
    return [row["$row_index"] for row in rows]


def offsets(client, consumer):
    rows = client.select_rows(f"* from [{consumer}]")
    return {(row["queue_path"], row["partition_index"]): row["offset"] for row in rows}


def test_registration_is_idempotent_and_listed(client, tmp, queue):
    """Registering again replaces; paths carry their cluster."""
    client.create("queue_consumer", f"{tmp}/c")
    client.register_queue_consumer(queue, f"{tmp}/c", vital=False)
    client.register_queue_consumer(queue, f"{tmp}/c", vital=True, partitions=[1])
    ((found),) = client.list_queue_consumer_registrations(queue_path=queue)
    assert str(found["queue_path"]) == queue
    assert found["queue_path"].attributes == {"cluster": "local"}
    assert str(found["consumer_path"]) == f"{tmp}/c"
    assert found["vital"]
    assert found["partitions"] == [1]
    assert len(client.list_queue_consumer_registrations(consumer_path=f"{tmp}/c")) == 1
    everything = client.list_queue_consumer_registrations()
    assert queue in {str(entry["queue_path"]) for entry in everything}
    client.unregister_queue_consumer(queue, f"{tmp}/c")
    client.unregister_queue_consumer(queue, f"{tmp}/c")
    assert client.list_queue_consumer_registrations(queue_path=queue) == []


def test_registration_follows_links(client, tmp, queue, consumer):
    """What counts is the physical path."""
    client.link(queue, f"{tmp}/link")
    assert len(client.list_queue_consumer_registrations(queue_path=f"{tmp}/link")) == 1
    assert pull(client, consumer, f"{tmp}/link") == list(range(10))


def test_other_clusters_are_unknown(client, queue, consumer):
    """The embedded cluster is alone."""
    with pytest.raises(YtResponseError, match="Queue cluster"):
        pull(client, consumer, f'<cluster="elsewhere">{queue}')
    assert pull(client, consumer, f'<cluster="local">{queue}') == list(range(10))


def test_unregistered_consumer_may_not_pull(client, tmp, queue):
    """The code is that of a missing permission."""
    client.create("queue_consumer", f"{tmp}/c")
    with pytest.raises(YtResponseError, match="is not registered for queue") as caught:
        pull(client, f"{tmp}/c", queue)
    assert caught.value.error["code"] == 901
    assert set(caught.value.error["attributes"]) >= {"raw_queue", "raw_consumer"}
    client.register_queue_consumer(queue, f"{tmp}/c", vital=False)
    assert pull(client, f"{tmp}/c", queue) == list(range(10))
    client.unregister_queue_consumer(queue, f"{tmp}/c")
    with pytest.raises(YtResponseError) as caught:
        pull(client, f"{tmp}/c", queue)
    assert caught.value.error["code"] == 901


def test_pull_without_an_offset_starts_at_the_stored_one(client, queue, consumer):
    """The stored offset is the first unread row, zero when there is none."""
    assert pull(client, consumer, queue) == list(range(10))
    client.advance_queue_consumer(consumer, queue, 0, None, 7)
    assert pull(client, consumer, queue) == [7, 8, 9]
    assert pull(client, consumer, queue, offset=2, max_row_count=2) == [2, 3]
    assert pull(client, consumer, queue, partition=1) == []


@pytest.mark.parametrize("client_side", [False, True])
def test_advance_checks_the_old_offset(client, queue, consumer, client_side):
    """Compare-and-set: who expects something else is told what is there."""

    def advance(old, new):
        client.advance_queue_consumer(consumer, queue, 0, old, new, client_side=client_side)

    advance(0, 4)
    with pytest.raises(YtResponseError) as caught:
        advance(3, 5)
    conflict = caught.value.find_matching_error(code=3100)
    assert conflict.message == (
        f"Offset conflict at partition 0 of consumer {consumer}: expected offset 3, found offset 4"
    )
    assert conflict.attributes["expected_offset"] == 3
    assert conflict.attributes["current_offset"] == 4
    assert conflict.attributes["current_offset_timestamp"] > 0
    advance(4, 2)
    advance(None, 1000)
    assert offsets(client, consumer) == {(queue, 0): 1000}
    with pytest.raises(YtResponseError, match="cannot be negative"):
        advance(None, -1)


def test_meta_is_computed_by_the_server_only(client, queue, consumer):
    """A client-side advance knows nothing about the queue."""
    rows = list(client.pull_queue(queue, 0, 0))

    def meta():
        ((row),) = client.select_rows(f"meta from [{consumer}]")
        return row["meta"]

    client.advance_queue_consumer(consumer, queue, 0, None, 4, client_side=False)
    assert meta() == {
        "cumulative_data_weight": rows[3]["$cumulative_data_weight"],
        "offset_timestamp": rows[4]["$timestamp"],
    }
    client.advance_queue_consumer(consumer, queue, 0, None, 10, client_side=False)
    assert meta() == {
        "cumulative_data_weight": rows[9]["$cumulative_data_weight"],
        "offset_timestamp": None,
    }
    client.advance_queue_consumer(consumer, queue, 0, None, 5, client_side=True)
    assert meta() is None


def test_advance_by_the_server_needs_a_registration(client, queue, consumer):
    """The client-side way does not ask."""
    client.unregister_queue_consumer(queue, consumer)
    with pytest.raises(YtResponseError) as caught:
        client.advance_queue_consumer(consumer, queue, 0, 0, 1, client_side=False)
    assert caught.value.contains_code(901)
    client.advance_queue_consumer(consumer, queue, 0, 0, 1, client_side=True)
    assert offsets(client, consumer) == {(queue, 0): 1}


def test_advance_and_rows_commit_together(client, sticky, tmp, queue, consumer):
    """Exactly-once in one transaction: output and offset, both or none."""
    key = {"name": "k", "type": "string", "sort_order": "ascending"}
    schema = [key, {"name": "n", "type": "int64"}]
    client.create("table", f"{tmp}/t", attributes={"dynamic": True, "schema": schema})
    client.mount_table(f"{tmp}/t", sync=True)
    member = sticky()
    with member.Transaction(type="tablet"):
        member.insert_rows(f"{tmp}/t", [{"k": "done", "n": 10}])
        member.advance_queue_consumer(consumer, queue, 0, 0, 10, client_side=False)
        assert offsets(client, consumer) == {}
    assert offsets(client, consumer) == {(queue, 0): 10}
    transaction_id = member.start_transaction(type="tablet")
    with member.Transaction(transaction_id=transaction_id, ping=False):
        member.advance_queue_consumer(consumer, queue, 0, 10, 11, client_side=False)
    member.abort_transaction(transaction_id)
    assert offsets(client, consumer) == {(queue, 0): 10}


def test_old_offset_is_that_of_the_start_of_the_transaction(client, sticky, queue, consumer):
    """Twice in one transaction both times from the original; the last one wins."""
    member = sticky()
    with member.Transaction(type="tablet"):
        member.advance_queue_consumer(consumer, queue, 0, 0, 3)
        with pytest.raises(YtResponseError) as caught:
            member.advance_queue_consumer(consumer, queue, 0, 3, 5)
        assert caught.value.contains_code(3100)
        member.advance_queue_consumer(consumer, queue, 0, 0, 6)
    assert offsets(client, consumer) == {(queue, 0): 6}


def test_of_two_advances_from_one_offset_one_commits(client, sticky, queue, consumer):
    """Both see the old offset; the second committer gets the row conflict."""
    left, right = sticky(), sticky()
    first, second = left.Transaction(type="tablet"), right.Transaction(type="tablet")
    first.__enter__()
    second.__enter__()
    left.advance_queue_consumer(consumer, queue, 0, 0, 5)
    right.advance_queue_consumer(consumer, queue, 0, 0, 7)
    second.__exit__(None, None, None)
    with pytest.raises(YtResponseError) as caught:
        first.__exit__(None, None, None)
    assert caught.value.contains_code(1700)
    assert offsets(client, consumer) == {(queue, 0): 7}


def test_table_that_is_no_consumer_is_refused(client, tmp, queue):
    """The schema decides."""
    client.create("queue_producer", f"{tmp}/p")
    client.register_queue_consumer(queue, f"{tmp}/p", vital=False)
    with pytest.raises(YtResponseError, match="not recognized as a valid consumer schema"):
        pull(client, f"{tmp}/p", queue)


def test_consumers_that_share_a_table_have_names(client, tmp, queue):
    """The name is an attribute of the path, required by that schema and by no other."""
    schema = [
        {"name": "queue_consumer_name", "type": "string"},
        {"name": "queue_cluster", "type": "string"},
        {"name": "queue_path", "type": "string"},
        {"name": "partition_index", "type": "uint64"},
    ]
    schema = [{**column, "sort_order": "ascending", "required": True} for column in schema]
    schema += [
        {"name": "offset", "type": "uint64", "required": True},
        {"name": "meta", "type": "any"},
    ]
    path = f"{tmp}/shared"
    client.create("table", path, attributes={"dynamic": True, "schema": schema})
    client.mount_table(path, sync=True)
    with pytest.raises(YtResponseError, match="Queue consumer name is required"):
        client.advance_queue_consumer(path, queue, 0, 0, 1)
    for name, offset in (("a", 1), ("b", 2)):
        client.advance_queue_consumer(f"<queue_consumer_name={name}>{path}", queue, 0, 0, offset)
    rows = client.select_rows(f"queue_consumer_name, [offset] from [{path}]")
    assert [tuple(row.values()) for row in rows] == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("name", ["pull_consumer", "advance_consumer"])
def test_old_command_names_still_work(raw, client, queue, consumer, name):
    """Both spellings are in use."""
    parameters = {"consumer_path": consumer, "queue_path": queue, "partition_index": 0}
    if name == "pull_consumer":
        answer = raw.command("GET", name, {**parameters, "output_format": "json"})
        assert len(answer.body.splitlines()) == 10
        assert answer.headers["x-yt-response-parameters"] == '{"start_offset":0}'
    else:
        assert raw.command("POST", name, {**parameters, "new_offset": 3}).status == 200
        assert offsets(client, consumer) == {(queue, 0): 3}
