"""Calls of one transaction that are made at the same time."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from yt_exactly_once.ytsaurus import transaction
from yt_exactly_once.ytsaurus.transaction import TabletTransaction


class Client:
    """A client that knows its number and how many calls it serves at once."""

    def __init__(self, number):
        self.number = number
        self.busy = threading.Lock()

    def Transaction(self, **_options):  # noqa: N802 - as the client has it
        return contextlib.nullcontext()

    def insert_rows(self, _path, rows, **_options):
        assert self.busy.acquire(blocking=False), "a client is not for two threads"
        rows[0](self.number)
        self.busy.release()


@pytest.fixture
def opened():
    with ThreadPoolExecutor(8) as pool:
        yield lambda clients: TabletTransaction(
            "1-2-3-4", [Client(number) for number in range(clients)], pool, proxy="proxy"
        )


def test_calls_meet_each_on_a_client_of_its_own(opened):
    """None of them could end if they were made one after the other."""
    meeting = threading.Barrier(3, timeout=30)
    used = []

    def meet(number):
        used.append(number)
        meeting.wait()

    opened(4).side_by_side([lambda lane: lane.insert("//t", [meet])] * 3)
    assert sorted(used) == [0, 1, 2]


@pytest.mark.parametrize("clients", [1, 2, 3, 9])
def test_results_come_in_the_order_of_the_calls(opened, clients):
    """However few clients there are."""
    calls = [lambda _, number=number: number for number in range(7)]
    assert opened(clients).side_by_side(calls) == list(range(7))
    assert opened(clients).side_by_side([]) == []


def test_first_failure_is_raised_when_all_calls_have_ended(opened):
    """A call that is still under way could write after the abort."""
    late = threading.Event()
    ended = []

    def fail(_):
        late.set()
        raise ValueError("first")

    def end_later(_):
        assert late.wait(30)
        ended.append(True)
        raise KeyError("second")

    with pytest.raises(ValueError, match="first"):
        opened(2).side_by_side([fail, end_later])
    assert ended == [True]


class Joining(Client):
    """A client that knows how many transactions it has joined, and may fail to join."""

    def __init__(self, number, *, fails=False):
        super().__init__(number)
        self.fails = fails
        self.joined = 0

    @contextlib.contextmanager
    def Transaction(self, **_options):  # noqa: N802 - as the client has it
        if self.fails:
            raise KeyboardInterrupt
        self.joined += 1
        try:
            yield
        finally:
            self.joined -= 1


def test_no_client_stays_joined_when_one_cannot_join():
    """The next transaction of that client would go into this one."""
    clients = [Joining(0), Joining(1, fails=True)]
    with pytest.raises(KeyboardInterrupt), ThreadPoolExecutor(1) as pool:
        TabletTransaction("1-2-3-4", clients, pool, proxy="proxy")
    assert clients[0].joined == 0


def test_interrupt_waits_for_the_calls_under_way(opened, monkeypatch):
    """Whoever aborts then finds no client at work."""
    entered, leave = threading.Event(), threading.Event()
    ended = []

    def end_later(_):
        entered.set()
        assert leave.wait(30)
        ended.append(True)

    waits = []

    def interrupted(futures):
        if not waits:
            waits.append(True)
            assert entered.wait(30)
            raise KeyboardInterrupt
        leave.set()
        return wait(futures)

    monkeypatch.setattr(transaction, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        opened(2).side_by_side([end_later, end_later])
    assert ended
