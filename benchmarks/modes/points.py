"""What a point of the benchmark is, and who may take part."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.modes.work import SHAPES, Shape
from yt_exactly_once import Event
from yt_exactly_once.config import DeliveryMode

FLOOR = "noop"
COLLECT = "collect"
TASKS = "tasks"
LIMIT = "bare client"
SNIPPET = "row snippet"
DELTA = "delta"
POSTGRES = "postgres"

MODES = tuple(mode.value for mode in (DeliveryMode.AT_LEAST_ONCE, DeliveryMode.TRANSACTIONAL))
IDEMPOTENT = DeliveryMode.IDEMPOTENT.value
SINKS = (*MODES, IDEMPOTENT)
OURS = (FLOOR, *SINKS)
"""The modes, and the floor under them."""

LEAST = (COLLECT, TASKS)
"""What Spark costs any sink that writes from the driver, and any that writes from Python tasks."""

ALL = (FLOOR, *LEAST, *MODES, IDEMPOTENT, LIMIT, SNIPPET, DELTA, POSTGRES)

STEPS: dict[str, str] = {
    Event.BATCH_COMPUTED: "3 compute",
    Event.TRANSACTION_STARTED: "4 open",
    Event.ROWS_WRITTEN: "5 to 8",
    Event.OFFSETS_ADVANCED: "5 to 8",
    Event.LEDGER_RECORDED: "5 to 8",
    Event.TRANSACTION_COMMITTED: "9 commit",
}
"""Step of the protocol by the event that ends it.

Modes that write from tasks write in step 3. The look-up is a part of it: rows may be computed meanwhile.
"""

IDENTIFY, AROUND = "1 identify", "Spark around it"
STEP_NAMES = (IDENTIFY, *dict.fromkeys(STEPS.values()), AROUND)
"""All steps in order. The first is what a sink does besides the others; the last, what Spark does."""

DESCRIPTIONS = {
    FLOOR: "Spark's noop sink, called from foreachBatch like the others",
    COLLECT: "foreachBatch that brings the rows to the driver as Arrow, and writes them nowhere",
    TASKS: "foreachBatch that gives the rows to Python tasks as Arrow, which count them and write nothing",
    "at-least-once": "TransactionalSink(mode='at-least-once')",
    "transactional": "TransactionalSink(), the default mode",
    IDEMPOTENT: "TransactionalSink(mode='idempotent')",
    LIMIT: "a loop of insert_rows over payloads that were encoded before, uncompressed, over one "
    "connection; no Spark, no promise",
    SNIPPET: "foreachBatch that calls insert_rows with a list of one dict per row, on a client with its "
    "defaults, which compress; may lose or repeat rows",
    DELTA: "foreachBatch into Delta Lake (deltalake), application transaction = number of the batch; it "
    "appends, and merges by key where a stateful query changes its totals",
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
        warm_up: turns of every contender that are not counted: the first one prepares, the JVM compiles.
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
    warm_up: int = 2
    contenders: tuple[str, ...] = ALL
    family: str = ""

    @property
    def shape(self) -> Shape:
        """Kind of rows."""
        return SHAPES[self.shape_name]

    @property
    def references(self) -> tuple[str, str]:
        """Whom everybody is compared with in a run: the noop sink and at-least-once."""
        return (FLOOR, MODES[0])

    @property
    def reference(self) -> str:
        """Whom the others are divided by when two runs are compared: nothing of ours."""
        return self.references[0]

    @property
    def encoded_bytes(self) -> int:
        """Data weight of a micro-batch."""
        return self.rows * self.shape.row_bytes


BASE = Point("base")
