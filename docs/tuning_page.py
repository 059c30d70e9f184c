"""The page of what acts on processes: its table is the one of the code."""

from __future__ import annotations

from yt_exactly_once.spark.tuning import SWITCH, Where
from yt_exactly_once.spark.tuning.table import TABLE

_TEXT = """\
# Tuning

This is everything that the package does to a process beyond the call at hand. All of it saves time. None
of it changes a result.

## The switch

`{switch}=off` turns all of it off. It is an environment variable, and each process reads its own:

- **The driver.** Set it before the program starts. Python processes on the driver's machine have it, too.
- **The executors.** Set `spark.executorEnv.{switch}=off`. `register_source` also passes on what the
  driver has.

Without the variable, and with `on`, the tuning is on. Any other value turns it off.
`register_source(spark, warm_up=False)` leaves out only what `register_source` starts.

## What is on by default

A line is on by default if all of this holds. It touches only Spark's processes that run a function of this
package, or a socket between such a process and Spark. It changes no result. A user who reads the line leaves
it on.

{tables}

## What is left to you

These need a setting of your own, because they also act on what is not ours:

| setting | acts on | effect |
|---|---|---|
{left}
"""

_LEFT = (
    (
        "`spark.python.unix.domain.socket.enabled=true`, from PySpark 4.1 on",
        "all Python functions of the session",
        "they [do not wait 40 ms](../measured/tried.md#why-every-python-task-waited-40-ms) for their input",
    ),
    (
        "`MALLOC_TRIM_THRESHOLD_=67108864` with `MALLOC_MMAP_THRESHOLD_=33554432`, in the environment",
        "the driver, with glibc",
        "[a batch of 100 000 rows](../measured/tried.md#the-driver-and-freed-memory) takes 5 % less time",
    ),
)


def tuning_page() -> str:
    """Return the page."""
    left = "\n".join(f"| {' | '.join(cells)} |" for cells in _LEFT)
    return _TEXT.format(switch=SWITCH, tables="\n\n".join(map(_table, Where)), left=left)


def _table(where: Where) -> str:
    rows = [
        f"| `{one.name}`: {one.what} | {one.why} | {one.gain} | {one.off or '-'} |"
        for one in TABLE
        if one.where is where
    ]
    head = ["| what | why | gain | turned off also by |", "|---|---|---|---|"]
    return "\n".join([f"In {where.value}:", "", *head, *rows])
