"""The design of the benchmark: which work is measured, and which contenders do it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.modes.work import SHAPES, Shape
from yt_exactly_once.config import WriteMode

FLOOR = "noop"
LIMIT = "bare client"
SNIPPET = "row snippet"
DELTA = "delta"
POSTGRES = "postgres"
MODES = tuple(mode.value for mode in (WriteMode.AT_LEAST_ONCE, WriteMode.TRANSACTIONAL))
IDEMPOTENT = WriteMode.IDEMPOTENT.value
ALL = (FLOOR, *MODES, IDEMPOTENT, LIMIT, SNIPPET, DELTA, POSTGRES)

DESCRIPTIONS = {
    FLOOR: "Spark's noop sink, called from foreachBatch like the others",
    "at-least-once": "TransactionalSink(mode='at-least-once')",
    "transactional": "TransactionalSink(), the default mode",
    IDEMPOTENT: "TransactionalSink(mode='idempotent')",
    LIMIT: "a loop of insert_rows over payloads that were encoded before; no Spark, no promise",
    SNIPPET: "foreachBatch that calls insert_rows with one dict per row; may lose or repeat rows",
    DELTA: "foreachBatch into Delta Lake (deltalake), application transaction = query and batch",
    POSTGRES: "foreachBatch into PostgreSQL: COPY of the rows and the batch id in one transaction",
}


@dataclass(frozen=True)
class Point:
    """One piece of work.

    Attributes:
        name: of the point.
        shape_name: kind of rows.
        rows: of one micro-batch.
        partitions: of the source, and tablets of an ordered target.
        source: `generated` (rows are made in the JVM, so that only the writing differs) or `queue`.
        target: `ordered` or `sorted`.
        query: `stateless`, `shuffle` or `stateful`.
        repetitions: measured turns of every contender.
        contenders: who does it.
    """

    name: str
    shape_name: str = "narrow"
    rows: int = 100_000
    partitions: int = 4
    source: str = "generated"
    target: str = "ordered"
    query: str = "stateless"
    repetitions: int = 7
    contenders: tuple[str, ...] = ALL

    @property
    def shape(self) -> Shape:
        """Kind of rows."""
        return SHAPES[self.shape_name]

    @property
    def encoded_bytes(self) -> int:
        """Data weight of a micro-batch."""
        return self.rows * self.shape.row_bytes


BASE = Point("base")
_OURS = (FLOOR, *MODES, IDEMPOTENT)

POINTS = (
    # First, in a driver that has not grown yet, and without anybody else's rows in it.
    replace(BASE, name="memory", rows=1_000_000, repetitions=5, contenders=(FLOOR, MODES[1])),
    BASE,
    *(
        replace(BASE, name=f"rows-{rows}", rows=rows, repetitions=repetitions)
        for rows, repetitions in ((1, 25), (1_000, 25), (10_000, 15))
    ),
    replace(
        BASE,
        name="rows-1000000",
        rows=1_000_000,
        repetitions=5,
        contenders=(*_OURS, LIMIT),
    ),
    replace(BASE, name="wide", shape_name="wide", repetitions=5),
    replace(
        BASE,
        name="composite",
        shape_name="composite",
        repetitions=5,
        contenders=(*_OURS, LIMIT, SNIPPET, DELTA),
    ),
    replace(BASE, name="sorted", target="sorted", contenders=(*_OURS, LIMIT, SNIPPET)),
    # A shuffle moves rows from task to task, and idempotent mode is for flows that do not.
    replace(BASE, name="shuffle", query="shuffle", contenders=(FLOOR, *MODES)),
    replace(BASE, name="stateful", query="stateful", target="sorted", contenders=(FLOOR, *MODES)),
    *(
        replace(
            BASE,
            name=f"queue-{partitions}",
            source="queue",
            partitions=partitions,
            contenders=(*_OURS, SNIPPET) if partitions == BASE.partitions else _OURS,
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
            contenders=_OURS,
            repetitions=25,
        )
        for partitions in (1, 4, 16)
    ),
)
BY_NAME = {point.name: point for point in POINTS}

QUICK = (
    replace(BASE, repetitions=5, contenders=(*_OURS, LIMIT, DELTA, POSTGRES)),
    replace(BY_NAME["rows-10000"], repetitions=5, contenders=(*_OURS, LIMIT)),
    replace(BY_NAME["tiny-queue-1"], repetitions=8),
    replace(BY_NAME["tiny-queue-16"], repetitions=5, contenders=(FLOOR, *MODES)),
)
"""What `--quick` measures: enough for the modes' ratios, in less than three minutes."""
