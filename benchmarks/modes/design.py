"""The design of the benchmark: which work is measured, and which contenders do it."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.modes.points import BASE, DELTA, FLOOR, LEAST, LIMIT, MODES, OURS, POSTGRES, SNIPPET

DOUBLING = tuple(15_625 << step for step in range(7))

POINTS = (
    # First, in a driver that has not grown yet, and without anybody else's rows in it.
    replace(BASE, name="memory", rows=1_000_000, repetitions=5, contenders=(FLOOR, MODES[1])),
    # The JVM compiles for dozens of batches, and a query runs for days.
    replace(BASE, repetitions=15, warm_up=12),
    *(
        replace(BASE, name=f"rows-{rows}", rows=rows, repetitions=repetitions)
        for rows, repetitions in ((1, 25), (1_000, 25), (10_000, 15))
    ),
    replace(BASE, name="rows-1000000", rows=1_000_000, repetitions=5, contenders=(*OURS, LIMIT)),
    # How the time grows: each has twice the rows of the one before, from 15 625 to 1 000 000.
    *(
        replace(BASE, name=f"doubled-{rows}", rows=rows, contenders=(MODES[1],), family="doubled")
        for rows in DOUBLING
    ),
    replace(BASE, name="wide", shape_name="wide", repetitions=5),
    replace(
        BASE,
        name="composite",
        shape_name="composite",
        repetitions=5,
        # The usual snippet cannot: the cluster takes a dict as a list of pairs, not as a Python dict.
        contenders=(*OURS, LIMIT, DELTA),
    ),
    replace(BASE, name="sorted", target="sorted", contenders=(*OURS, LIMIT, SNIPPET, DELTA)),
    # A shuffle moves rows from task to task, and idempotent mode is for flows that do not.
    replace(BASE, name="shuffle", query="shuffle", contenders=(FLOOR, *MODES, DELTA)),
    replace(
        BASE, name="stateful", query="stateful", target="sorted", contenders=(FLOOR, *MODES, DELTA)
    ),
    *(
        replace(
            BASE,
            name=f"queue-{partitions}",
            source="queue",
            partitions=partitions,
            contenders=(*OURS, *LEAST, SNIPPET, DELTA)
            if partitions == BASE.partitions
            else (*OURS, DELTA),
            repetitions=5,
        )
        for partitions in (1, 4, 16)
    ),
    *(
        replace(
            BASE,
            name=f"tiny-queue-{partitions}",
            source="queue",
            partitions=partitions,
            rows=partitions,
            contenders=(*OURS, *LEAST, DELTA),
            repetitions=25,
        )
        for partitions in (1, 4, 16)
    ),
)
BY_NAME = {point.name: point for point in POINTS}

QUICK = (
    replace(BY_NAME[BASE.name], repetitions=5, contenders=(*OURS, LIMIT, DELTA, POSTGRES)),
    replace(BY_NAME["rows-10000"], repetitions=5, contenders=(*OURS, LIMIT)),
    replace(BY_NAME["tiny-queue-1"], repetitions=8),
    replace(BY_NAME["tiny-queue-16"], repetitions=5, contenders=(FLOOR, *MODES)),
)
"""What `--quick` measures: enough for the modes' ratios, in less than three minutes."""
