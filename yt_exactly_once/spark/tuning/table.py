"""The table of everything in this room that acts; the docs show it."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.spark.tuning import Tuning
from yt_exactly_once.spark.tuning.acknowledge import acknowledge
from yt_exactly_once.spark.tuning.collector import freeze_modules, stop_collector
from yt_exactly_once.spark.tuning.memory import keep_freed_memory
from yt_exactly_once.spark.tuning.start import (
    fork_planners,
    import_before_fork,
    leave_archives_out,
    start_sooner,
)
from yt_exactly_once.spark.tuning.warm_up import warm_up

TABLE: tuple[Tuning[..., Any], ...] = (
    start_sooner,
    leave_archives_out,
    import_before_fork,
    fork_planners,
    warm_up,
    acknowledge,
    freeze_modules,
    stop_collector,
    keep_freed_memory,
)
