"""Peak memory of a process, from the kernel's own high-water mark (Linux)."""

from __future__ import annotations

import re
from pathlib import Path

_RESET_PEAK = "5"
_MARKS = re.compile(r"^Vm(HWM|RSS):\s+(\d+) kB", re.MULTILINE)


class PeakMemory:
    """The resident memory of one process.

    Args:
        pid: of the process.
    """

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    def reset(self) -> None:
        """Begin a new peak, where the system can."""
        mark = self._folder / "clear_refs"
        if mark.exists():
            mark.write_text(_RESET_PEAK)

    def resident(self) -> int | None:
        """Return the bytes held now; `None` where the system does not tell."""
        return self._read("RSS")

    def peak(self) -> int | None:
        """Return the most bytes held since the last reset."""
        return self._read("HWM")

    def _read(self, name: str) -> int | None:
        status = self._folder / "status"
        if not status.exists():
            return None
        return {mark: int(value) * 1024 for mark, value in _MARKS.findall(status.read_text())}[name]
