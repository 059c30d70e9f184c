"""What the kernel says of processes: their CPU seconds and their memory (Linux)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CLUSTER, DRIVER, JVM, WORKERS = PARTS = ("cluster", "driver", "jvm", "workers")
"""Whose CPU counts apart: the proxies, the driver's Python, the JVM, the Python processes it starts."""

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_RESET_PEAK = "5"
_SHARE = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)
_MARKS = re.compile(r"^Vm(HWM|RSS):\s+(\d+) kB", re.MULTILINE)

# Fields of /proc/PID/stat behind the name: own times (user, system), then those of ended children.
_PARENT = 1
_OWN = slice(11, 13)
_ENDED_CHILDREN = slice(13, 15)


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes and of their children that have ended; 0 for one that is gone."""
    stats = [_stat(pid) for pid in pids]
    return sum(_seconds(stat, _OWN) + _seconds(stat, _ENDED_CHILDREN) for stat in stats)


def descendants(pid: int) -> list[int]:
    """Return the living processes that a process has started, and those that they have started."""
    children: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and (stat := _stat(int(folder.name))):
            children.setdefault(int(stat[_PARENT]), []).append(int(folder.name))
    found = list(children.get(pid, ()))
    for parent in found:  # grows while it is walked
        found += children.get(parent, ())
    return found


def java_of(pid: int) -> int:
    """Return the JVM that a driver's Python has started.

    Raises:
        LookupError: there is none.
    """
    for child in descendants(pid):
        try:
            if (_PROC / str(child) / "comm").read_text().strip() == "java":
                return child
        except OSError:
            continue  # it has ended in between
    message = f"Process {pid} has started no JVM"
    raise LookupError(message)


@dataclass(frozen=True)
class SparkProcesses:
    """The processes of a cluster and of a Spark driver that computes itself (`local[*]`).

    Attributes:
        cluster: process ids of the proxies.
        driver: process id of the driver's Python.
        jvm: process id of the JVM.
    """

    cluster: tuple[int, ...]
    driver: int
    jvm: int

    def workers(self) -> list[int]:
        """Return the Python processes that the JVM has started: for tasks, and to plan what sources read."""
        return descendants(self.jvm)

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds of every part so far.

        Commands that the JVM has run are part of it: for each file of a local checkpoint it runs `chmod`.
        """
        return {
            CLUSTER: cpu_seconds(self.cluster),
            DRIVER: _seconds(_stat(self.driver), _OWN),
            JVM: cpu_seconds([self.jvm]),
            WORKERS: cpu_seconds(self.workers()),
        }


class PeakMemory:
    """The resident memory of one process.

    Args:
        pid: of the process.
    """

    def __init__(self, pid: int) -> None:
        self._folder = _PROC / str(pid)
        self._mark = self._folder / "clear_refs"

    def reset(self) -> None:
        """Begin a new peak, where the system can and the process is still there."""
        try:
            self._mark.write_text(_RESET_PEAK)
        except OSError:
            return

    def resident(self) -> int | None:
        """Return the bytes held now; `None` where the system does not tell."""
        return self._read("RSS")

    def peak(self) -> int | None:
        """Return the most bytes held since the last reset; `None` where there is no reset."""
        return self._read("HWM") if self._mark.exists() else None

    def _read(self, name: str) -> int | None:
        try:
            status = (self._folder / "status").read_text()
        except OSError:
            return None
        marks = {mark: int(value) * 1024 for mark, value in _MARKS.findall(status)}
        return marks.get(name)  # a process that has ended and is not yet reaped has none


def proportional_memory(pid: int) -> int:
    """Return the bytes of a process, of shared ones its share; 0 where the system does not tell."""
    try:
        text = (_PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return 0
    return int(_SHARE.findall(text)[0]) * 1024


def run_time(pid: int) -> int:
    """Return the nanoseconds that the first thread of a process has run; 0 where the system does not tell."""
    try:
        return int((_PROC / str(pid) / "schedstat").read_text().split()[0])
    except OSError:
        return 0


def _seconds(stat: list[str], fields: slice) -> float:
    return sum(map(int, stat[fields])) / _TICKS


def _stat(pid: int) -> list[str]:
    """Return the fields of a process behind its name; none when it is gone."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
