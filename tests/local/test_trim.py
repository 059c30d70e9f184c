"""The step that trims queues, asked for from another process, and the agent that takes it by itself."""

import pytest

from tests.contract.tables import create
from yt_exactly_once.local import LocalCluster, LocalClusterError


@pytest.fixture(scope="module")
def cluster():
    """A cluster without registrations of other tests."""
    with LocalCluster() as running:
        yield running


def _queue(client, path):
    schema, trims = [{"name": "n", "type": "int64"}], {"enable": True}
    create(client, f"{path}/queue", schema, tablet_count=2, auto_trim_config=trims)
    client.create("queue_consumer", f"{path}/consumer")
    client.register_queue_consumer(f"{path}/queue", f"{path}/consumer", vital=True)
    rows = [{"n": number, "$tablet_index": number % 2} for number in range(10)]
    client.insert_rows(f"{path}/queue", rows)


def _left(client, path, partition):
    return [row["n"] for row in client.pull_queue(f"{path}/queue", 0, partition)]


def test_step_drops_what_the_vital_consumer_has_read(cluster, client, tmp):
    """Consumed rows are gone, the others keep their place."""
    _queue(client, tmp)
    client.advance_queue_consumer(f"{tmp}/consumer", f"{tmp}/queue", 0, 0, 3)
    assert cluster.trim_queues()[f"{tmp}/queue"] == {0: 3}
    assert _left(client, tmp, 0) == [6, 8]
    assert _left(client, tmp, 1) == [1, 3, 5, 7, 9]


def test_step_names_a_queue_that_is_gone(cluster, client, tmp):
    """A registration without its queue is a mistake somebody should hear of."""
    _queue(client, tmp)
    client.remove(f"{tmp}/queue")
    with pytest.raises(LocalClusterError, match=f"{tmp}/queue"):
        cluster.trim_queues()
    client.unregister_queue_consumer(f"{tmp}/queue", f"{tmp}/consumer")
    cluster.trim_queues()


def test_agent_trims_by_itself():
    """With a period nobody has to ask."""
    with LocalCluster(trim_every=0.05) as cluster:
        client = cluster.client()
        client.create("map_node", "//tmp/agent")
        _queue(client, "//tmp/agent")
        client.advance_queue_consumer("//tmp/agent/consumer", "//tmp/agent/queue", 0, 0, 4)
        while _left(client, "//tmp/agent", 0) != [8]:
            pass
