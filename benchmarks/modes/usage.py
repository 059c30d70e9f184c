"""What one turn uses: CPU seconds by part, and memory."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.processes import PeakMemory, SparkProcesses, run_time


@dataclass(frozen=True)
class Usage:
    """Used between two moments.

    Attributes:
        cpu: seconds by part.
        driver_bytes: peak of the driver's Python above what an idle driver held.
        turn_bytes: the same above what it held at the first moment.
        jvm_bytes: peak of the JVM.
        worker_bytes: peak of the largest Python worker that has run; `None` where none has.
    """

    cpu: dict[str, float]
    driver_bytes: int | None
    turn_bytes: int | None
    jvm_bytes: int | None
    worker_bytes: int | None


class UsageMeter:
    """Measures turn after turn.

    Args:
        processes: whose usage.
    """

    def __init__(self, processes: SparkProcesses) -> None:
        self._processes = processes
        self._driver = PeakMemory(processes.driver)
        self._jvm = PeakMemory(processes.jvm)
        self._idle = self._resting = self._driver.resident()
        self._cpu: dict[str, float] = {}
        self._ran: dict[int, int] = {}

    def begin(self) -> None:
        """Begin a turn."""
        self._resting = self._driver.resident()
        self._driver.reset()
        self._jvm.reset()
        self._ran = {pid: run_time(pid) for pid in self._processes.workers()}
        for pid in self._ran:
            PeakMemory(pid).reset()
        self._cpu = self._processes.cpu()

    def end(self) -> Usage:
        """Return what the turn has used."""
        cpu = self._processes.cpu()
        peak = self._driver.peak()
        # Others' workers idle beside; a worker counts if it has run.
        busy = [pid for pid in self._processes.workers() if run_time(pid) != self._ran.get(pid, -1)]
        workers = [size for pid in busy if (size := PeakMemory(pid).peak()) is not None]
        return Usage(
            # What a worker has used is lost when it outlives the process that started it, and ends.
            {part: max(0.0, seconds - self._cpu[part]) for part, seconds in cpu.items()},
            _above(self._idle, peak),
            _above(self._resting, peak),
            self._jvm.peak(),
            max(workers, default=None),
        )


def _above(base: int | None, peak: int | None) -> int | None:
    return None if base is None or peak is None else max(0, peak - base)
