"""What the queue agent would publish about queues and consumers that are not as they should be."""

import pytest
import yt.wrapper as yt
from yt import yson

from tests.contract.tables import create

VALUE = {"name": "data", "type": "string"}
WEIGHT = {"name": "$cumulative_data_weight", "type": "int64"}
TIME = {"name": "$timestamp", "type": "uint64"}


@pytest.fixture
def queue(client, tmp):
    """A queue of two partitions with a registered consumer beside it."""
    create(client, f"{tmp}/q", [VALUE, TIME], tablet_count=2)
    client.create("queue_consumer", f"{tmp}/c")
    client.register_queue_consumer(f"{tmp}/q", f"{tmp}/c", vital=False)
    return f"{tmp}/q"


def partitions(client, path, role="queue"):
    found = client.get(f"{path}/@{role}_partitions")
    return found if role == "queue" else next(iter(found.values()))


def test_weights_are_told_by_the_last_row(client, queue):
    """Without the column, or where the last row is older than it, nothing is known."""
    client.insert_rows(queue, [{"data": "foo", "$tablet_index": 0}])
    assert partitions(client, queue)[0]["cumulative_data_weight"] == yson.YsonEntity()
    client.unmount_table(queue, sync=True)
    client.alter_table(queue, schema=[VALUE, TIME, WEIGHT])
    client.mount_table(queue, sync=True)
    assert partitions(client, queue)[0]["cumulative_data_weight"] == yson.YsonEntity()
    client.trim_rows(queue, 0, 1)
    client.insert_rows(queue, [{"data": "foo", "$tablet_index": 0}] * 100)
    client.trim_rows(queue, 0, 91)
    first, second = partitions(client, queue)
    assert first["cumulative_data_weight"] == 12 + 100 * 20
    assert (first["trimmed_data_weight"], first["available_data_weight"]) == (1812, 200)
    assert second["cumulative_data_weight"] == yson.YsonEntity()


def test_time_since_the_last_commit_is_told(client, queue):
    """Of a partition that was never written to, it is the time since 1970."""
    client.insert_rows(queue, [{"data": "foo", "$tablet_index": 0}])
    first, second = partitions(client, queue)
    assert 0 <= first["commit_idle_time"] < 600_000
    assert second["last_row_commit_time"] == "1970-01-01T00:00:00.000000Z"
    assert second["commit_idle_time"] > 10**12


def test_unmounted_partition_is_an_error_of_its_own(client, queue, tmp):
    """The others are described as ever, for the queue and for its consumers."""
    client.unmount_table(queue, first_tablet_index=1, last_tablet_index=1, sync=True)
    for path, role in ((queue, "queue"), (f"{tmp}/c", "queue_consumer")):
        first, second = partitions(client, path, role)
        assert "error" not in first
        assert list(second) == ["error"]
        assert "is not mounted" in second["error"]["message"]
        assert second["error"]["attributes"]["state"] == "unmounted"
    assert client.get(f"{queue}/@queue_status/partition_count") == 2


def test_banned_queue_or_consumer_is_not_described(client, queue, tmp):
    """The queue agent leaves it alone until the ban is lifted."""
    consumer = f"{tmp}/c"
    client.set(f"{consumer}/@queue_agent_banned", True)
    status = client.get(f"{consumer}/@queue_consumer_status")
    assert status["error"]["message"] == "Consumer is banned"
    assert client.get(f"{consumer}/@queue_consumer_partitions") == {}
    client.set(f"{consumer}/@queue_agent_banned", False)
    assert "error" not in client.get(f"{consumer}/@queue_consumer_status")
    client.set(f"{queue}/@queue_agent_banned", True)
    assert "Queue is banned" in client.get(f"{queue}/@queue_status/error/message")
    assert partitions(client, queue) == []
    client.set(f"{queue}/@queue_agent_banned", False)
    assert "error" not in client.get(f"{queue}/@queue_status")


@pytest.mark.parametrize("attribute", ["queue_producer_status", "queue_producer_partitions"])
def test_queue_agent_knows_no_producers(client, tmp, attribute):
    """The attribute is listed and cannot be read: `TQueueAgent` in `server/queue_agent/queue_agent.cpp`."""
    client.create("queue_producer", f"{tmp}/p")
    assert client.get(f"{tmp}/p/@")[attribute] == yson.YsonEntity()
    with pytest.raises(yt.YtResponseError, match='has no child with key "producers"') as failed:
        client.get(f"{tmp}/p/@{attribute}")
    assert failed.value.contains_code(500)


def test_consumer_that_cannot_be_read_says_why(client, queue, tmp):
    """Nothing is guessed: one that is not mounted has an error for each of its queues."""
    consumer = f"{tmp}/c"
    client.unmount_table(consumer, sync=True)
    known = client.get(f"{consumer}/@queue_consumer_status")
    assert len(known["registrations"]) == 1
    assert "is not mounted" in known["queues"][f"local:{queue}"]["error"]["message"]
    assert client.get(f"{consumer}/@queue_consumer_partitions") == {}


def test_consumer_of_another_schema_says_why(client, tmp):
    """All of its status is the error."""
    create(client, f"{tmp}/bad", mount=False, treat_as_queue_consumer=True)
    message = client.get(f"{tmp}/bad/@queue_consumer_status/error/message")
    assert "not recognized as a valid consumer schema" in message


def test_another_stage_has_no_queue_agent(client, queue):
    """The attribute has a default, and a queue of another stage has no status."""
    assert client.get(f"{queue}/@queue_agent_stage") == "production"
    client.set(f"{queue}/@queue_agent_stage", "testing")
    with pytest.raises(yt.YtResponseError, match='stage "testing" is not found'):
        client.get(f"{queue}/@queue_status")
    client.remove(f"{queue}/@queue_agent_stage")
    assert "registrations" in client.get(f"{queue}/@queue_status")


def test_consumer_created_in_a_transaction_is_one_after_the_commit(client, tmp):
    """A master allows it, and an abort leaves nothing."""
    with client.Transaction():
        client.create("queue_consumer", f"{tmp}/late")
    assert client.get(f"{tmp}/late/@treat_as_queue_consumer")
