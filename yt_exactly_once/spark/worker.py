"""The Python workers of Spark's executors, as far as their speed goes.

A worker serves many tasks, one after the other. After each of them `pyspark/daemon.py` calls `gc.collect()`,
which looks at every object of every imported module. The next task of the worker waits for that.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_modules() -> None:
    """Take everything that is imported out of the garbage collector's sight, once per process.

    Modules are never garbage. What a task makes later is collected as before. Every function of ours that
    runs in tasks calls this first.
    """
    gc.freeze()
