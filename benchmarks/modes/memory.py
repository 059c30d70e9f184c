"""Peak memory of a process, from the kernel's own high-water mark (Linux)."""

from __future__ import annotations

import ctypes
import gc
import re
from pathlib import Path

import pyarrow as pa

_RESET_PEAK = "5"
_MARKS = re.compile(r"^Vm(HWM|RSS):\s+(\d+) kB", re.MULTILINE)


class PeakMemory:
    """The resident memory of one process.

    Args:
        pid: of the process.
    """

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        self._mark = self._folder / "clear_refs"

    def reset(self) -> None:
        """Begin a new peak, where the system can."""
        if self._mark.exists():
            self._mark.write_text(_RESET_PEAK)

    def resident(self) -> int | None:
        """Return the bytes held now; `None` where the system does not tell."""
        return self._read("RSS")

    def peak(self) -> int | None:
        """Return the most bytes held since the last reset; `None` where there is no reset."""
        return self._read("HWM") if self._mark.exists() else None

    def _read(self, name: str) -> int | None:
        status = self._folder / "status"
        if not status.exists():
            return None
        return {mark: int(value) * 1024 for mark, value in _MARKS.findall(status.read_text())}[name]


def give_back() -> None:
    """Give memory that this process no longer uses back to the system, so that each peak is its own."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
