"""The link delays, names itself, and counts what waits for each other."""

from __future__ import annotations

from urllib.request import urlopen

import pytest

from benchmarks.modes.turns import Turn
from benchmarks.network.latency import reasons
from benchmarks.network.link import Conditions, Link, Request, chain
from yt_exactly_once.local import LocalCluster


@pytest.mark.parametrize(
    ("spans", "length"),
    [
        ([], 0),
        ([(0, 1), (1, 2), (3, 4)], 3),
        ([(0, 5), (1, 2), (2, 3)], 2),
        ([(0, 2), (1, 3), (2, 4), (3, 5)], 2),
        ([(2, 3), (0, 1)], 2),
    ],
)
def test_requests_that_are_under_way_together_count_once(spans, length):
    assert chain(Request(begin, end, 0) for begin, end in spans) == length


def test_a_request_over_a_link_takes_its_round_trip_and_is_counted():
    with LocalCluster() as cluster:
        upstream = cluster.proxy_urls[0].removeprefix("http://")
        with Link(upstream, Conditions(round_trip=0.05)) as link:
            for _ in range(2):
                with urlopen(f"http://{link.address}/hosts") as answer:
                    assert link.address in answer.read().decode()
            requests = link.requests()
            link.become(Conditions(bandwidth=1_000))
            with urlopen(f"http://{link.address}/hosts") as answer:
                size = len(answer.read())
            (paced,) = link.requests()
    assert len(requests) == chain(requests) == 2
    assert {request.command for request in requests} == {"hosts"}
    assert all(request.end - request.begin >= 0.05 for request in requests)
    assert paced.end - paced.begin >= size / 1_000


def test_a_slow_batch_is_put_down_to_the_step_that_took_longer_than_usual():
    usual = Turn(1.0, 0.9, {"3 compute": 0.5, "9 commit": 0.1})
    slow = Turn(2.0, 1.9, {"3 compute": 0.6, "9 commit": 1.0})
    around = Turn(2.0, 0.9, {"3 compute": 0.5, "9 commit": 0.1})
    assert reasons([usual] * 9 + [slow, around]) == {"9 commit": 1, "Spark around the sink": 1}
