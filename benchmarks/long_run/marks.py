"""What is seen at each mark of the way, and what is made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks.processes import CLUSTER, DRIVER, JVM, PARTS, WORKERS, PeakMemory, SparkProcesses

MOST_GROWTH = 1.1
"""Of a peak of memory, from the second share to the last; the first one warms up."""

LEAST_RATE = 0.95
"""Of the rows per second of the last share, divided by those of the first."""

_BOUNDED = (CLUSTER, DRIVER, WORKERS)
"""Whose memory must not grow; the JVM fills its heap before it collects garbage."""


@dataclass(frozen=True)
class Mark:
    """Seen when so many rows were committed.

    Attributes:
        rows: committed so far.
        seconds: since the run began.
        cpu: seconds of processor time so far, by part.
        peaks: most bytes of memory since the mark before, by part; of the workers, the largest one's.
        disk: bytes of the cluster's data.
        checkpoint: bytes of the checkpoint.
    """

    rows: int
    seconds: float
    cpu: dict[str, float]
    peaks: dict[str, int] = field(default_factory=dict)
    disk: int = 0
    checkpoint: int = 0


class Observer:
    """Sees the processes and the folders of a run.

    Args:
        processes: to look at.
        data: folder of the cluster.
        checkpoint: folder of the query.
    """

    def __init__(self, processes: SparkProcesses, data: Path, checkpoint: Path) -> None:
        self._processes = processes
        self._data = data
        self._checkpoint = checkpoint

    def mark(self, rows: int, seconds: float) -> Mark:
        """Look, and begin new peaks."""
        by_part = {
            CLUSTER: self._processes.cluster,
            DRIVER: [self._processes.driver],
            JVM: [self._processes.jvm],
            WORKERS: self._processes.workers(),
        }
        peaks = {
            part: max((PeakMemory(pid).peak() or 0 for pid in pids), default=0)
            for part, pids in by_part.items()
        }
        for pids in by_part.values():
            for pid in pids:
                PeakMemory(pid).reset()
        return Mark(
            rows, seconds, self._processes.cpu(), peaks, _size(self._data), _size(self._checkpoint)
        )


@dataclass(frozen=True)
class Share:
    """The way from one mark to the next: rows per second, and CPU seconds per million rows by part."""

    end: Mark
    rate: float
    cpu: dict[str, float]


def shares(marks: Sequence[Mark]) -> list[Share]:
    """Return what lies between the marks."""
    return [
        Share(
            after,
            (after.rows - before.rows) / (after.seconds - before.seconds),
            {
                part: (after.cpu[part] - before.cpu[part]) / (after.rows - before.rows) * 1e6
                for part in PARTS
            },
        )
        for before, after in pairwise(marks)
    ]


def table(found: Sequence[Share]) -> Iterator[str]:
    """Yield the lines of the report: a line for each share."""
    yield (
        "| rows, millions | rows/s | CPU s per million rows: "
        + " | ".join(PARTS)
        + " | peak MB: "
        + " | ".join(PARTS)
        + " | cluster's disk, MB | checkpoint, MB |"
    )
    yield "|---" * (2 + 2 * len(PARTS) + 2) + "|"
    for share in found:
        cells = [
            f"{share.end.rows / 1e6:.1f}",
            f"{share.rate:,.0f}",
            *(f"{share.cpu[part]:.1f}" for part in PARTS),
            *(f"{share.end.peaks[part] / 1e6:,.0f}" for part in PARTS),
            f"{share.end.disk / 1e6:,.0f}",
            f"{share.end.checkpoint / 1e6:.1f}",
        ]
        yield f"| {' | '.join(cells)} |"


def faults(found: Sequence[Share]) -> Iterator[str]:
    """Yield what has grown or slowed down; nothing of a run with fewer than three shares."""
    if len(found) < 3:
        return
    rate = found[-1].rate / found[0].rate
    if rate < LEAST_RATE:
        yield f"the last share ran at {rate:.2f} times the rows/s of the first, and not at {LEAST_RATE}"
    for part in _BOUNDED:
        growth = found[-1].end.peaks[part] / max(found[1].end.peaks[part], 1)
        if growth > MOST_GROWTH:
            yield f"the memory of the {part} has grown {growth:.2f} times since the second share"


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue  # removed in between
    return total
