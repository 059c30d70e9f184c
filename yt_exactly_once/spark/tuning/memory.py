"""What Spark's Python processes keep of the memory that they free."""

from __future__ import annotations

from functools import cache

from yt_exactly_once.spark.tuning import Where, tuning

_LARGEST_BLOCK = 32 * 2**20 - 2**16
"""Bytes, just below the largest block by which glibc moves its thresholds (`DEFAULT_MMAP_THRESHOLD_MAX`)."""


@tuning(
    what="lets glibc keep up to 64 MiB of freed memory for each process that reads a queue",
    where=Where.WORKER,
    why="a pull frees megabytes. The kernel would take them, and clear each page for the next pull",
    gain="a sixth of the processor time of a read of wide rows, for 32 MB of memory",
    off="your own `MALLOC_TRIM_THRESHOLD_` takes its place",
)
@cache
def keep_freed_memory() -> None:
    """Let this process keep up to 64 MiB that it has freed.

    glibc keeps up to twice the largest block that was ever freed, as far as that was below 32 MiB. So one
    such block is made and freed. Nobody writes to it, so it takes no memory. An allocator that is not
    glibc's stays as it is.
    """
    bytes(_LARGEST_BLOCK)
