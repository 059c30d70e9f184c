"""Growth: what a batch costs per unit of its work, while one dimension of the work grows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.modes.points import BASE, FLOOR, MODES, OURS, Point

if TYPE_CHECKING:
    from collections.abc import Callable

_REPETITIONS = 5


@dataclass(frozen=True)
class Dimension:
    """One dimension, and the points along it.

    Attributes:
        name: of the dimension, and of the family of its points.
        text: what grows, and what stays.
        unit: of the work that the costs are divided by.
        work: units of work of a batch, by value.
        points: by value, in growing order.
    """

    name: str
    text: str
    unit: str
    work: Callable[[int], float]
    points: dict[int, Point]


def _dimension(
    name: str,
    text: str,
    unit: str,
    values: tuple[int, ...],
    work: Callable[[int], float],
    point: Callable[[int], Point],
) -> Dimension:
    family = f"growth of {name}"
    points = {
        value: replace(
            point(value), name=f"{name}-{value}", family=family, repetitions=_REPETITIONS
        )
        for value in values
    }
    return Dimension(name, text, unit, work, points)


_TO_64 = tuple(1 << power for power in range(7))
_ROWS = 64_000
_CELLS = 1_000_000
_BYTES = 32 << 20

DIMENSIONS = (
    _dimension(
        "polled",
        "partitions of the queue, one new row in each",
        "partition",
        _TO_64,
        float,
        lambda value: replace(BASE, rows=value, partitions=value, source="queue", contenders=OURS),
    ),
    _dimension(
        "partitions",
        f"partitions of the queue and tablets of the target, which share {_ROWS:,} rows",
        "1,000 rows",
        _TO_64,
        lambda _: _ROWS / 1000,
        lambda value: replace(BASE, rows=_ROWS, partitions=value, source="queue", contenders=OURS),
    ),
    _dimension(
        "tablets",
        f"tablets of the target, among which {_ROWS:,} rows are spread",
        "1,000 rows",
        _TO_64,
        lambda _: _ROWS / 1000,
        lambda value: replace(BASE, rows=_ROWS, tablets=value, contenders=OURS),
    ),
    _dimension(
        "targets",
        "targets, 10,000 rows for each",
        "1,000 rows written",
        (1, 2, 4, 8, 16),
        lambda value: 10.0 * value,
        # Only transactional mode writes several targets.
        lambda value: replace(BASE, rows=10_000, targets=value, contenders=(FLOOR, MODES[1])),
    ),
    _dimension(
        "columns",
        f"columns, {_CELLS:,} numbers in all",
        "1,000 numbers",
        (10, 30, 100, 300, 1000),
        lambda _: _CELLS / 1000,
        lambda value: replace(
            BASE, shape_name=f"columns-{value}", rows=_CELLS // value, contenders=OURS
        ),
    ),
    _dimension(
        "row-kilobytes",
        f"kilobytes of a row, {_BYTES >> 20} MiB in all",
        "MiB",
        (1, 16, 128, 1024),
        lambda _: _BYTES / (1 << 20),
        lambda value: replace(
            BASE, shape_name=f"bytes-{value << 10}", rows=_BYTES // (value << 10), contenders=OURS
        ),
    ),
)
