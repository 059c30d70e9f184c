"""The Python workers of Spark's executors, as far as their speed goes, and the driver where it collects.

A worker serves many tasks, one after the other. After each of them `pyspark/daemon.py` calls `gc.collect()`,
which looks at every object of every imported module. The next task of the worker waits for that.

A worker that reads also frees many megabytes with each pull, and a driver with each batch. glibc returns them
to the kernel, which clears each page again for the next one.

Spark sends a worker its task and the input of the task one after the other, over TCP with Nagle's algorithm.
So the input waits until the worker has acknowledged the task, and Linux delays that by 40 ms.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import current_thread
from typing import Any, TypeVar

T = TypeVar("T")

_spared = 0
"""How many modules this process had when they were last taken out of sight."""

_THREADS = "yt-task"

_OPEN_FILES = Path("/proc/self/fd")

_LARGEST_BLOCK = 32 * 2**20 - 2**16
"""Bytes, just below the largest block by which glibc moves its thresholds (`DEFAULT_MMAP_THRESHOLD_MAX`)."""


def spare_modules() -> None:
    """Take everything that is imported out of the garbage collector's sight, at the begin of a task.

    Modules are never garbage. What a task makes later is collected as before. A task may import more: the
    first one that sends opens a client. So the next task spares that too. Every function of ours that runs in
    tasks calls this first.
    """
    global _spared  # noqa: PLW0603 - the collector belongs to the process, too
    count = len(sys.modules)
    if count != _spared:
        gc.freeze()
        _spared = count


class Sent:
    """What a worker gets as a part of its task. To unpickle it acknowledges the task."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Arrive, before Spark sends the input."""
        vars(self).update(state)
        _acknowledge()


def _acknowledge() -> None:
    """Acknowledge all that has come over TCP, and what comes until this process answers as it is read.

    Nobody tells which connection is the one to Spark. Others bear it.
    """
    if sys.platform != "linux" or not _OPEN_FILES.is_dir():
        return
    for entry in _OPEN_FILES.iterdir():
        # Another thread may have closed it, and Spark may use sockets of another family.
        with suppress(OSError):
            number = int(entry.name)
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


@cache
def keep_freed_memory() -> None:
    """Let this process keep up to 64 MiB that it has freed.

    glibc keeps up to twice the largest block that was ever freed, as far as that was below 32 MiB. So one
    such block is made and freed. Nobody writes to it, so it takes no memory. An allocator that is set by
    `MALLOC_*` variables stays as it is, and so does one that is not glibc's.
    """
    bytes(_LARGEST_BLOCK)


def side_by_side(calls: Sequence[Callable[[], T]], most: int) -> list[T]:
    """Make calls on several threads, and return what they return, in their order.

    The threads stay for later tasks of the process: each has a client of its own, with a connection that is
    open. A single call is made on the thread of the caller. So are the calls of a call: they would wait for
    a thread for ever, if all threads waited for such calls. When this ends, no call is running any more. The
    first error, in the order of the calls, is raised. Calls that had not begun then are left out.

    Args:
        most: how many calls are made at a time.
    """
    if min(len(calls), most) == 1 or current_thread().name.startswith(_THREADS):
        return [call() for call in calls]
    futures: list[Future[T]] = [threads(most).submit(call) for call in calls]
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
