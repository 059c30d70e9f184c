"""How many rows of a queue partition fit into a batch of a given data weight.

The queue itself counts: its column `$cumulative_data_weight` holds, in every row, the weight of all rows
up to it. A few single rows are pulled to find the place; the rows of the batch are not read twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

WEIGHT_COLUMN = "$cumulative_data_weight"

_TOLERANCE = 0.05
_PROBES = 40


def end_within(weight_until: Callable[[int], int], start: int, end: int, max_bytes: int) -> int:
    """Return where to end a batch that begins at `start` so that it weighs at most `max_bytes`.

    The weight of the first row is not known and not counted, and the place is found to within a
    twentieth of the limit; never later than where the limit is reached.

    Args:
        weight_until: gives the cumulative weight stored in a row.
        start: first row of the batch.
        end: where the batch would end without this limit, more than `start`.
        max_bytes: the limit.
    """
    low, high = start, end - 1
    if low == high:
        return end
    low_weight, high_weight = weight_until(low), weight_until(high)
    limit = low_weight + max_bytes
    if high_weight <= limit:
        return end
    for probe in range(_PROBES):
        if high - low == 1 or limit - low_weight <= _TOLERANCE * max_bytes:
            break
        if probe % 2:
            # Even rows are found by interpolation at once; halving in between bounds the search
            # when a few rows are much heavier than the rest.
            guess = (low + high) // 2
        else:
            guess = low + (high - low) * (limit - low_weight) // max(1, high_weight - low_weight)
        place = min(max(guess, low + 1), high - 1)
        weight = weight_until(place)
        if weight <= limit:
            low, low_weight = place, weight
        else:
            high, high_weight = place, weight
    return low + 1
