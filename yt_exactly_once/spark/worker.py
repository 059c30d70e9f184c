"""The Python workers of Spark's executors, as far as their speed goes.

A worker serves many tasks, one after the other. After each of them `pyspark/daemon.py` calls `gc.collect()`,
which looks at every object of every imported module. The next task of the worker waits for that.
"""

from __future__ import annotations

import gc
import sys

_spared = 0
"""How many modules this process had when they were last taken out of sight."""


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
