"""Threads of a process that runs tasks: for calls side by side, and for calls now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from threading import Event, Thread, current_thread
from typing import TypeVar

from yt_exactly_once.errors import ExactlyOnceError

T = TypeVar("T")

_THREADS = "yt-task"


def side_by_side(calls: Sequence[Callable[[], T]], connections: int) -> list[T]:
    """Make calls on several threads, and return what they return, in their order.

    The threads stay for later tasks of the process: each has a client of its own, with a connection that is
    open. A single call is made on the thread of the caller. So are the calls of a call: they would wait for
    a thread for ever, if all threads waited for such calls. When this ends, no call is running any more. The
    first error, in the order of the calls, is raised. Calls that had not begun then are left out.

    Args:
        connections: how many calls are made at a time.
    """
    if min(len(calls), connections) == 1 or current_thread().name.startswith(_THREADS):
        return [call() for call in calls]
    futures: list[Future[T]] = [threads(connections).submit(call) for call in calls]
    wait(futures, return_when=FIRST_EXCEPTION)
    made = [future for future in futures if not future.cancel()]
    wait(made)
    for future in made:
        future.result()
    return [future.result() for future in futures]


@cache
def threads(count: int) -> ThreadPoolExecutor:
    """Return threads of this process; each keeps its connection from task to task."""
    return ThreadPoolExecutor(count, thread_name_prefix=_THREADS)


@contextmanager
def repeated(every: float, call: Callable[[], object]) -> Iterator[None]:
    """Make a call every so many seconds while a block runs, on a thread of its own; failures do not matter.

    The end of the block does not wait for a call that is under way.
    """
    done = Event()

    def run() -> None:
        while not done.wait(every):
            with suppress(ExactlyOnceError):
                call()

    Thread(target=run, name=f"{_THREADS}-repeated", daemon=True).start()
    try:
        yield
    finally:
        done.set()
