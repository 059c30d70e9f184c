"""Queries over several queues, and between two clusters."""

from dataclasses import replace

import pytest

from tests.flows import STATELESS, Queue, differences, ledger_entries, passed_on
from yt_exactly_once import Event
from yt_exactly_once.local import LocalCluster


@pytest.mark.nightly
def test_two_queues_in_one_query_are_both_exact(stream, client, tmp):
    """Also when a batch is replayed in which one of them is idle."""
    first, second = (Queue.filled(client, tmp, 2_000, name) for name in ("first", "second"))
    other = stream(queue=second, name="other")

    def both(frame):
        moved = other.frame().selectExpr("part + 3 as part", "* except (part)")
        return STATELESS.build(frame).unionByName(moved)

    flow = stream(replace(STATELESS, build=both), queue=first)

    def assert_both():
        moved = [(row[0] + 3, *row[1:]) for row in passed_on(second)]
        assert differences(flow.found(), passed_on(first) + moved) == ""

    flow.run()
    assert_both()
    first.append(500)
    flow.run()
    last = flow.forget_last_batch()
    told = flow.run()
    assert [fields["batch"] for fields in told.of(Event.BATCH_SKIPPED)] == [last]
    assert_both()
    first.append(10, 2)
    second.append(500)
    flow.run()
    assert_both()
    assert first.stored() == first.ends()
    assert second.stored() == second.ends()


@pytest.fixture
def other(tmp_path):
    """Another cluster."""
    with LocalCluster(tmp_path / "other") as running:
        yield running


@pytest.mark.further
def test_source_and_target_on_two_clusters(stream, other):
    """One transaction cannot move a consumer elsewhere. Without a consumer the ledger alone decides.

    The other cluster has the same name, and a queue at the same path that another query reads.
    """
    flow = stream(rows=300, rows_per_partition=100)
    client, folder = other.client(), flow.target.rpartition("/")[0]
    theirs = Queue.filled(client, folder, 300)
    STATELESS.create_target(client, flow.target, is_sorted=False)
    there = {"proxy": other.proxy_urls[0]}
    flow.consumer = flow.queue.consumer
    assert theirs.consumer == flow.consumer
    assert "on another cluster than the target" in flow.fail("ConfigError", **there)
    flow.checkpoint = flow.checkpoint.with_name("format")
    assert "on another cluster" in flow.fail("ConfigError", by_format=True, **there)
    assert theirs.stored() == {}
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
