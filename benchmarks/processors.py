"""What the kernel says of processes: the CPU seconds they have used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes and of their children that have ended; 0 for one that is gone."""
    stats = [stat for pid in pids if (stat := _stat(pid))]
    return sum(int(ticks) for stat in stats for ticks in stat[11:15]) / _TICKS


def _stat(pid: int) -> list[str]:
    """Return the fields of a process behind its name; none when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
