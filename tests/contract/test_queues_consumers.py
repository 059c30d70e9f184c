"""Consumers: registrations, offsets, and the trimming that follows them."""

import pytest
from yt.wrapper import YtResponseError

from tests.contract.tables import SYSTEM, VALUE, columns, create, key_columns, refused

COLUMNS = [
    *key_columns(queue_cluster="string!", queue_path="string!", partition_index="uint64!"),
    *columns(offset="uint64!", meta="any"),
]


@pytest.fixture
def queue(client, tmp):
    """A queue with ten rows in the first of two partitions."""
    path = f"{tmp}/q"
    create(client, path, [VALUE, *SYSTEM], tablet_count=2)
    client.insert_rows(path, [{"v": f"{index}", "$tablet_index": 0} for index in range(10)])
    return path


@pytest.fixture
def consumer(client, tmp, queue):
    """A registered consumer."""
    client.create("queue_consumer", f"{tmp}/c")
    client.register_queue_consumer(queue, f"{tmp}/c", vital=True)
    return f"{tmp}/c"


def pull(client, consumer, queue, offset=0, partition=0, **limits):
    rows = client.pull_queue_consumer(
        consumer, queue, offset=offset, partition_index=partition, **limits
    )
    return [row["$row_index"] for row in rows]


def offsets(client, consumer):
    rows = client.select_rows(f"* from [{consumer}]")
    return {(row["queue_path"], row["partition_index"]): row["offset"] for row in rows}


def test_registration_is_idempotent_and_listed(client, tmp, queue, cluster_name):
    """Registering again replaces; paths carry their cluster."""
    client.create("queue_consumer", f"{tmp}/c")
    client.register_queue_consumer(queue, f"{tmp}/c", vital=False)
    client.register_queue_consumer(queue, f"{tmp}/c", vital=True, partitions=[1])
    ((found),) = client.list_queue_consumer_registrations(queue_path=queue)
    assert str(found["queue_path"]) == queue
    assert found["queue_path"].attributes == {"cluster": cluster_name}
    assert str(found["consumer_path"]) == f"{tmp}/c"
    assert found["vital"]
    assert found["partitions"] == [1]
    assert len(client.list_queue_consumer_registrations(consumer_path=f"{tmp}/c")) == 1
    everything = client.list_queue_consumer_registrations()
    assert queue in {str(entry["queue_path"]) for entry in everything}
    client.unregister_queue_consumer(queue, f"{tmp}/c")
    client.unregister_queue_consumer(queue, f"{tmp}/c")
    assert client.list_queue_consumer_registrations(queue_path=queue) == []


def test_unregistered_consumer_may_not_pull(client, tmp, queue):
    """The code is that of a missing permission."""
    client.create("queue_consumer", f"{tmp}/c")
    with pytest.raises(YtResponseError, match="is not registered for queue") as caught:
        pull(client, f"{tmp}/c", queue)
    assert caught.value.error["code"] == 901
    cause = caught.value.find_matching_error(
        predicate=lambda error: {"raw_queue", "raw_consumer"} <= error.attributes.keys()
    )
    assert cause.code == 901
    client.register_queue_consumer(queue, f"{tmp}/c", vital=False)
    assert pull(client, f"{tmp}/c", queue) == list(range(10))
    client.unregister_queue_consumer(queue, f"{tmp}/c")
    with pytest.raises(YtResponseError) as caught:
        pull(client, f"{tmp}/c", queue)
    assert caught.value.error["code"] == 901


@pytest.mark.only_over("http", "the C++ driver insists on an offset")
def test_pull_without_an_offset_starts_at_the_stored_one(client, queue, consumer):
    """The stored offset is the first unread row, zero when there is none."""
    assert pull(client, consumer, queue, None) == list(range(10))
    client.advance_queue_consumer(consumer, queue, 0, None, 7)
    assert pull(client, consumer, queue, None) == [7, 8, 9]
    assert pull(client, consumer, queue, offset=2, max_row_count=2) == [2, 3]
    assert pull(client, consumer, queue, None, partition=1) == []


@pytest.mark.parametrize("client_side", [False, True])
def test_advance_checks_the_old_offset(client, queue, consumer, client_side):
    """Compare-and-set: who expects something else is told what is there."""

    def advance(old, new):
        client.advance_queue_consumer(consumer, queue, 0, old, new, client_side=client_side)

    advance(0, 4)
    with pytest.raises(YtResponseError) as caught:
        advance(3, 5)
    conflict = caught.value.find_matching_error(
        predicate=lambda error: error.code == 3100 and "current_offset" in error.attributes
    )
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
    with refused(901):
        client.advance_queue_consumer(consumer, queue, 0, 0, 1, client_side=False)
    client.advance_queue_consumer(consumer, queue, 0, 0, 1, client_side=True)
    assert offsets(client, consumer) == {(queue, 0): 1}


def test_advance_and_rows_commit_together(client, sticky, tmp, queue, consumer):
    """Exactly-once in one transaction: output and offset, both or none."""
    key = {"name": "k", "type": "string", "sort_order": "ascending"}
    schema = [key, {"name": "n", "type": "int64"}]
    create(client, f"{tmp}/t", schema)
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
        with refused(3100):
            member.advance_queue_consumer(consumer, queue, 0, 3, 5)
        member.advance_queue_consumer(consumer, queue, 0, 0, 6)
    assert offsets(client, consumer) == {(queue, 0): 6}


@pytest.mark.parametrize("change", [{"required": False}, {"type": "int64"}, {"name": "queue"}])
def test_consumer_has_exactly_its_schema(client, tmp, queue, change):
    """Nearly right is not enough."""
    first, *others = COLUMNS
    create(client, f"{tmp}/near", [{**first, **change}, *others])
    client.register_queue_consumer(queue, f"{tmp}/near", vital=False)
    with pytest.raises(YtResponseError, match="not recognized as a valid consumer schema"):
        client.advance_queue_consumer(f"{tmp}/near", queue, 0, None, 1)


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


def test_registrations_are_rows_of_a_table(client, tmp, queue, cluster_name):
    """Tools read `consumer_registrations` directly, and what is written there holds."""
    table = "//sys/queue_agents/consumer_registrations"
    consumer = f"{tmp}/c"
    client.create("queue_consumer", consumer)
    client.register_queue_consumer(queue, consumer, vital=True, partitions=[1, 0])
    query = f"* from [{table}] where queue_path = '{queue}'"
    (row,) = client.select_rows(query)
    assert row == {
        "queue_cluster": cluster_name,
        "queue_path": queue,
        "consumer_cluster": cluster_name,
        "consumer_path": consumer,
        "vital": True,
        "partitions": [1, 0],
    }
    client.insert_rows(table, [{**row, "vital": False, "partitions": None}])
    (listed,) = client.list_queue_consumer_registrations(queue_path=queue)
    assert (listed["vital"], listed["partitions"]) == (False, None)
    client.unregister_queue_consumer(queue, consumer)
    assert list(client.select_rows(query)) == []


@pytest.mark.only_over("http", "the C++ driver insists on an offset")
def test_places_on_other_clusters_are_registered_but_not_read(
    client, queue, consumer, cluster_name
):
    """Clusters are named by attribute or prefix, in short or in full; only this one is at hand."""
    for path in ("abc://tmp/x", "<cluster=abc>//tmp/x", "<cluster=abc.yt.yandex.net>//tmp/x"):
        client.register_queue_consumer(path, f"{cluster_name}:{consumer}", vital=False)
        (listed,) = client.list_queue_consumer_registrations(queue_path="abc://tmp/x")
        assert listed["queue_path"].attributes == {"cluster": "abc"}
        assert listed["consumer_path"].attributes == {"cluster": cluster_name}
        for offset in (None, 0):
            with pytest.raises(YtResponseError, match='Queue cluster "abc"'):
                pull(client, consumer, path, offset)
        client.unregister_queue_consumer(path, consumer)
        assert client.list_queue_consumer_registrations(queue_path="abc://tmp/x") == []
    assert client.list_queue_consumer_registrations(queue_path=f"abc:{queue}") == []


def test_what_does_not_exist_is_not_registered(client, tmp, queue, consumer):
    """Only a registration that is there may outlive its objects, and only tables are objects."""
    client.create("map_node", f"{tmp}/folder")
    wrong = (f"{tmp}/none", f"{tmp}/folder")
    for places in [(path, consumer) for path in wrong] + [(queue, path) for path in wrong]:
        with refused(500, match="Failed to get table mount info"):
            client.register_queue_consumer(*places, vital=False)
    with pytest.raises(YtResponseError, match="Failed to resolve queue path"):
        client.advance_queue_consumer(consumer, f"{tmp}/none", 0, 0, 1, client_side=False)
    assert len(client.list_queue_consumer_registrations(consumer_path=consumer)) == 1


def listed(client, **wanted):
    """Return the registrations that match as plain tuples."""
    return {
        (
            str(found["queue_path"]).rpartition("/")[2],
            str(found["consumer_path"]).rpartition("/")[2],
            found["vital"],
            tuple(found["partitions"]) if isinstance(found["partitions"], list) else None,
        )
        for found in client.list_queue_consumer_registrations(**wanted)
    }


@pytest.mark.parametrize(("queue_end", "consumer_end"), [("-link", ""), ("", "-link")])
def test_registration_by_a_link_is_one_of_its_target(
    client, queue, consumer, queue_end, consumer_end
):
    """It is found and dropped either way."""
    client.unregister_queue_consumer(queue, consumer)
    client.link(queue, f"{queue}-link")
    client.link(consumer, f"{consumer}-link")
    client.register_queue_consumer(queue + queue_end, consumer + consumer_end, vital=True)
    assert listed(client, queue_path=queue, consumer_path=consumer) == {("q", "c", True, None)}
    client.unregister_queue_consumer(queue + consumer_end, consumer + queue_end)
    assert listed(client, queue_path=queue) == set()


def test_registration_of_a_removed_queue_can_be_dropped(client, queue, consumer):
    """And until then it is listed."""
    client.remove(queue)
    assert listed(client, consumer_path=consumer) == {("q", "c", True, None)}
    client.unregister_queue_consumer(queue, consumer)
    assert listed(client, consumer_path=consumer) == set()


@pytest.mark.parametrize("with_meta", [True, False])
def test_consumer_may_lack_the_meta_column(client, tmp, queue, with_meta):
    """It then keeps offsets only; a link to it does not matter."""
    schema = [column for column in COLUMNS if with_meta or column["name"] != "meta"]
    create(client, f"{tmp}/plain", schema, treat_as_queue_consumer=True)
    client.link(f"{tmp}/plain", f"{tmp}/link")
    client.register_queue_consumer(queue, f"{tmp}/link", vital=False)

    def advance(old, new):
        client.advance_queue_consumer(f"{tmp}/link", queue, 0, old, new, client_side=False)
        ((row,),) = [client.select_rows(f"* from [{tmp}/plain]")]
        assert row["offset"] == new
        return (row.get("meta") or {}).get("cumulative_data_weight")

    # A row weighs eighteen: one letter, two numbers and its own overhead.
    assert advance(None, 3) == (54 if with_meta else None)
    with refused(3100):
        advance(4, 5)
    assert advance(3, 5) == (90 if with_meta else None)
    assert advance(None, 12) is None
