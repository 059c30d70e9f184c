"""A source on one cluster and a target on another, and one checkpoint for the same paths on both."""

import pytest

from tests.flows import STATELESS, differences, ledger_entries, passed_on
from yt_exactly_once.local import LocalCluster

pytestmark = pytest.mark.further


@pytest.fixture
def other(tmp_path):
    """Another cluster."""
    with LocalCluster(tmp_path / "other") as running:
        yield running


def test_source_and_target_on_two_clusters(stream, other):
    """One transaction cannot move a consumer elsewhere. Without a consumer the ledger alone decides."""
    flow = stream(rows=300, rows_per_partition=100)
    client, folder = other.client(), flow.target.rpartition("/")[0]
    client.create("map_node", folder, recursive=True)
    STATELESS.create_target(client, flow.target, is_sorted=False)
    there = {"proxy": other.proxy_urls[0]}
    flow.consumer = flow.queue.consumer
    flow.fail("ConsumerNotFoundError", **there)
    assert STATELESS.found(client, flow.target) == []
    flow.consumer = ""
    flow.checkpoint = flow.checkpoint.with_name("other")
    for _ in range(2):
        flow.run(**there)
        assert (
            differences(STATELESS.found(client, flow.target), sorted(passed_on(flow.queue))) == ""
        )
        flow.forget_last_batch()
    # The same paths on the cluster of the source: nothing there has the batch.
    assert "The proxy belongs to another cluster" in flow.fail("ConfigError")
    assert flow.found() == []
    assert ledger_entries(flow.client, flow.ledger) == []
