"""A query over several queues."""

from dataclasses import replace

import pytest

from tests.flows import STATELESS, Queue, differences, passed_on
from yt_exactly_once import Event


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
