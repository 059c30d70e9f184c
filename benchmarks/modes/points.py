"""The design of the benchmark: which work is measured, and which contenders do it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.modes.work import SHAPES, Shape
from yt_exactly_once import Event
from yt_exactly_once.config import WriteMode

FLOOR = "noop"
LIMIT = "bare client"
SNIPPET = "row snippet"
DELTA = "delta"
POSTGRES = "postgres"
MODES = tuple(mode.value for mode in (WriteMode.AT_LEAST_ONCE, WriteMode.TRANSACTIONAL))
IDEMPOTENT = WriteMode.IDEMPOTENT.value
ALL = (FLOOR, *MODES, IDEMPOTENT, LIMIT, SNIPPET, DELTA, POSTGRES)

STEPS: dict[str, str] = {
    Event.LEDGER_READ: "2 look up",
    Event.BATCH_COMPUTED: "3 compute",
    Event.TRANSACTION_STARTED: "4 open",
    Event.ROWS_WRITTEN: "5 to 8",
    Event.OFFSETS_ADVANCED: "5 to 8",
    Event.LEDGER_RECORDED: "5 to 8",
    Event.TRANSACTION_COMMITTED: "9 commit",
}
"""Step of the protocol by the event that ends it; modes that write from tasks write in step 3."""

IDENTIFY, AROUND = "1 identify", "Spark around it"
STEP_NAMES = (IDENTIFY, *dict.fromkeys(STEPS.values()), AROUND)
"""All steps in order. The first is what a sink does besides the others; the last, what Spark does."""

DESCRIPTIONS = {
    FLOOR: "Spark's noop sink, called from foreachBatch like the others",
    "at-least-once": "TransactionalSink(mode='at-least-once')",
    "transactional": "TransactionalSink(), the default mode",
    IDEMPOTENT: "TransactionalSink(mode='idempotent')",
    LIMIT: "a loop of insert_rows over payloads that were encoded before, uncompressed, over one "
    "connection; no Spark, no promise",
    SNIPPET: "foreachBatch that calls insert_rows with a list of one dict per row, on a client with its "
    "defaults, which compress; may lose or repeat rows",
    DELTA: "foreachBatch into Delta Lake (deltalake), application transaction = number of the batch",
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
        family: points of one family are measured together, round by round; empty for one by itself.
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
    family: str = ""

    @property
    def shape(self) -> Shape:
        """Kind of rows."""
        return SHAPES[self.shape_name]

    @property
    def encoded_bytes(self) -> int:
        """Data weight of a micro-batch."""
        return self.rows * self.shape.row_bytes


BASE = Point("base")
DOUBLING = tuple(15_625 << step for step in range(7))
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
    # How the time grows: each has twice the rows of the one before, from 15 625 to 1 000 000.
    *(
        replace(
            BASE,
            name=f"doubled-{rows}",
            rows=rows,
            contenders=(MODES[1],),
            family="doubled",
        )
        for rows in DOUBLING
    ),
    replace(BASE, name="wide", shape_name="wide", repetitions=5),
    replace(
        BASE,
        name="composite",
        shape_name="composite",
        repetitions=5,
        # The usual snippet cannot: the cluster takes a dict as a list of pairs, not as a Python dict.
        contenders=(*_OURS, LIMIT, DELTA),
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
