"""What a user deploys, as data: a query, and its runs, each with a function, options and a mishap.

A `Program` prints as what one would tell a colleague, and shrinks to what matters. What its function is
meant to write is said here, too; whether it was written is the oracle's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum, StrEnum
from typing import Any, NamedTuple, cast

from tests.callers.mishaps import Death
from yt_exactly_once.codec.schema import SOURCE_QUEUE_COLUMN, is_reserved
from yt_exactly_once.config import DeliveryMode

INTERNAL_NAMES = (
    "__yt_exactly_once_partition",
    "__yt_exactly_once_tablet",
    "__yt_exactly_once_key_hash_64",
    "__yt_exactly_once_row_hash",
    "__key_hash_64",
    "__key_hash_32",
)
"""Names of columns that the sink adds to a DataFrame, or once did."""

SYSTEM_NAMES = ("$timestamp", "$cumulative_data_weight", SOURCE_QUEUE_COLUMN)
"""Names of columns of a queue that no table takes."""

SPARK_NAMES = (
    "c0",
    "c1",
    "c2",
    "c3",
    "c10",
    "C1",
    "order id",
    "a.b",
    "a`b",
    "ID",
    "größe",
    "имя",
    "1",
)
"""Names that Spark finds under other names only, and the names under which columns travel to tasks then."""


class Told:
    """Prints as the code that makes it, without what is as usual."""

    def __repr__(self) -> str:
        """Name the fields that differ from their defaults."""
        given = [
            f"{field.name}={_code(getattr(self, field.name))}"
            for field in fields(cast("Any", self))
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(given)})"


def _code(value: Any) -> str:
    match value:
        case Enum():
            return f"{type(value).__name__}.{value.name}"
        case tuple() if hasattr(value, "_fields"):
            return f"{type(value).__name__}({', '.join(map(_code, value))})"
        case tuple():
            return f"({', '.join(map(_code, value))}{',' * (len(value) == 1)})"
        case _:
            return repr(value)


class Source(StrEnum):
    """Where the rows come from."""

    CONSUMER = "a queue, with a consumer"
    QUEUE = "a queue, without a consumer"
    FILES = "files: as many partitions as cores"


class Part(StrEnum):
    """Which rows of the batch a call passes."""

    ALL = "all"
    EVEN = "even"
    ODD = "odd"
    NONE = "none"
    GOOD = "those without a fault"
    GOOD_ODD = "the odd ones without a fault"


class Layout(StrEnum):
    """What becomes of the rows' places on the way to the sink; as Spark would lay them out."""

    AS_READ = "as read"
    COALESCED = "coalesce(cores)"
    SHUFFLED = "repartition(cores); in memory with an order of its own at every evaluation"
    PERSISTED = "repartition(cores).persist()"
    LOCAL = "createDataFrame(pandas): several tasks, and one number of a partition for all rows"
    UNION = "df.union(df) of two filters: the partitions of one after those of the other"

    @property
    def keeps_places(self) -> bool:
        """Whether rows stay in the order and, but for coalescing, in the partition they were read in."""
        return self in {Layout.AS_READ, Layout.COALESCED, Layout.LOCAL}


class OnError(StrEnum):
    """What the function does about an error of the sink."""

    RAISE = "raise"
    SWALLOW = "swallow"
    GOOD = "call again with the rows without a fault"
    GOOD_ODD = "call again with the odd rows without a fault"


@dataclass(frozen=True, repr=False)
class Call(Told):
    """One call of a sink.

    Attributes:
        part: which rows it passes.
        since: in batches from this one on; as read before.
        sink: which sink: `a` and `b` live as long as the run, `new` is made for this call.
        on_error: what follows from an error.
    """

    part: Part = Part.ALL
    layout: Layout = Layout.AS_READ
    since: int = 0
    sink: str = "a"
    on_error: OnError = OnError.RAISE

    def layout_in(self, batch: int) -> Layout:
        return self.layout if batch >= self.since else Layout.AS_READ

    @property
    def second_part(self) -> Part | None:
        """What is passed after an error."""
        return {OnError.GOOD: Part.GOOD, OnError.GOOD_ODD: Part.GOOD_ODD}.get(self.on_error)


@dataclass(frozen=True, repr=False)
class Function(Told):
    """What is given to foreachBatch.

    Attributes:
        threads: each call in a thread of its own, all joined, the first error raised; after so many
            requests another thread has its turn. 0 is no threads.
        skips: batches in which it returns at once.
        skips_empty: whether it returns at once where a batch has no rows.
    """

    calls: tuple[Call, ...] = (Call(),)
    threads: int = 0
    skips: frozenset[int] = frozenset()
    skips_empty: bool = False


class Row(NamedTuple):
    """One row.

    Attributes:
        id: its number, different from all others.
        kind: `.` plain, `x` with a value that the target cannot take; `0` and `-` have the key 0.0 and
            -0.0; `D` and `d` delete these keys.
    """

    id: int
    place: tuple[int, int]
    kind: str

    @property
    def key(self) -> float:
        """The key, for a sorted target."""
        return {"0": 0.0, "D": 0.0, "-": -0.0, "d": -0.0}.get(self.kind, self.id + 1.0)

    @property
    def is_bad(self) -> bool:
        """Whether the target cannot take it."""
        return self.kind == "x"

    @property
    def shares_its_key(self) -> bool:
        """Whether other rows have its key."""
        return self.kind in "0-Dd"

    @property
    def deletes(self) -> bool:
        """Whether it deletes its key."""
        return self.kind in "Dd"


@dataclass(frozen=True, repr=False)
class Run(Told):
    """One run of the query, from a start to an end, a crash or an error.

    Attributes:
        cores: how many.
        unlogged: Spark dies before it logs the commit of this batch.
        batches: how many batches Spark runs before it is stopped; all by default.
        listener: the event at which the metrics hook raises.
        ledger_removed: somebody has removed the ledger before.
        ledger_restored: somebody has put a copy in its place, made when Spark last logged a batch.
        put_back: somebody has put the rows of ledger and target back as they were after this batch.
        sessions_lost: somebody has removed all sessions of the producer before.
        read_only: the checkpoint takes no note, though Spark's logs.
        accepts: the batch whose missing rows are given up, `accept_incomplete` of the sink.
        newer: what a newer version of the package has left before: `entry` or `offset`.
        looks: whether the targets are looked at before every batch, not every ten seconds.
        tablets: of the target, from the second batch of the run on.
        arrow_rows: most rows of an Arrow batch, as the session has it.
        retyped: from then on a column of the target has another type of the same width; it looks then.
    """

    mode: DeliveryMode = DeliveryMode.TRANSACTIONAL
    function: Function = Function()
    cores: int = 2
    wire: str = "auto"
    death: Death | None = None
    unlogged: int | None = None
    batches: int | None = None
    listener: str = ""
    ledger_removed: bool = False
    ledger_restored: bool = False
    put_back: int | None = None
    sessions_lost: bool = False
    read_only: bool = False
    accepts: int | None = None
    newer: str = ""
    looks: bool = False
    tablets: int | None = None
    retyped: bool = False
    arrow_rows: int = 10_000

    @property
    def is_calm(self) -> bool:
        """Whether nothing dies in it and nothing was taken away."""
        whole = self.death is None and self.unlogged is None and not self.read_only
        whole = whole and (self.looks or self.tablets is None)
        return whole and not self.loses_entries

    @property
    def loses_entries(self) -> bool:
        """Whether somebody has taken entries of the ledger away, or sessions of the producer."""
        is_whole = not (self.ledger_removed or self.ledger_restored or self.sessions_lost)
        return not is_whole or self.put_back is not None


@dataclass(frozen=True, repr=False)
class Program(Told):
    """A query, and all its runs.

    Attributes:
        rows: kinds of the rows, per batch and partition of the source.
        source: where they come from.
        rejects: whether there is a table of rejected rows.
        marker: whether a column marks rows that delete their key.
        has_any: whether the target has a column of type `any`.
        old_proxy: whether the proxy stores Arrow binaries for `any` as strings.
        parts: whether a batch is written in parts of few rows.
        names: columns of these names come first in the DataFrame, and are in the target unless it cannot
            have them.
    """

    runs: tuple[Run, ...]
    rows: tuple[tuple[str, ...], ...] = (("....", "...."), ("....", "...."))
    source: Source = Source.CONSUMER
    numbered: bool = False
    is_sorted: bool = False
    tablets: int = 2
    placement: str = "partition"
    rejects: bool = False
    marker: bool = False
    has_any: bool = False
    old_proxy: bool = False
    parts: bool = False
    names: tuple[str, ...] = ()

    def batch(self, number: int) -> list[list[Row]]:
        """Return the rows of a batch, per partition of the source."""
        partitions = []
        for place, kinds in enumerate(self.rows[number]):
            start = self.ends(number - 1)[place]
            partitions.append(
                [
                    Row(1_000 * place + start + index, (place, start + index), kind)
                    for index, kind in enumerate(kinds)
                ]
            )
        return partitions

    def ends(self, number: int) -> list[int]:
        """Return where a batch ends, per partition of the source."""
        width = len(self.rows[0])
        return [sum(len(each[place]) for each in self.rows[: number + 1]) for place in range(width)]

    def calls(self, run: Run, batch: int) -> tuple[Call, ...]:
        function = run.function
        is_skipped = function.skips_empty and not any(self.rows[batch])
        return () if is_skipped or batch in function.skips else function.calls

    def passed(self, part: Part, rows: Iterable[Row]) -> list[Row]:
        """Return the rows of a part."""
        keep = {
            Part.ALL: lambda _: True,
            Part.EVEN: lambda row: row.id % 2 == 0,
            Part.ODD: lambda row: row.id % 2 == 1,
            Part.NONE: lambda _: False,
            Part.GOOD: lambda row: not row.is_bad,
            Part.GOOD_ODD: lambda row: not row.is_bad and row.id % 2 == 1,
        }[part]
        return [row for row in rows if keep(row)]

    @property
    def is_blameless(self) -> bool:
        """Whether nothing in it gives the sink a reason to refuse a batch.

        One call per batch with all of its rows, nothing changed between runs but what idempotent mode
        allows, no row that the target cannot take.
        """
        modes = {run.mode for run in self.runs}
        functions = {run.function for run in self.runs}
        kinds = "".join(kinds for batch in self.rows for kinds in batch)
        is_disturbed = any(run.loses_entries or run.newer or run.retyped for run in self.runs)
        if len(modes) > 1 or len(functions) > 1 or is_disturbed:
            return False
        (mode,), (function,) = modes, functions
        calls = function.calls
        if (
            len(calls) != 1
            or function.skips
            or function.threads
            or any(map(is_reserved, self.names))
        ):
            return False
        one = calls[0]
        if one.part is not Part.ALL or one.sink == "new":
            return False
        if (self.is_sorted and set(kinds) & set("0-Dd")) or ("x" in kinds and not self.rejects):
            return False
        if mode is DeliveryMode.IDEMPOTENT and not self.is_sorted:
            steady = one.layout in {Layout.AS_READ, Layout.COALESCED}
            laid_out = one.layout is Layout.COALESCED or self.source is Source.FILES
            one_layout = len({run.cores for run in self.runs}) == 1 or not laid_out
            by_source = self.numbered and self.source is not Source.FILES
            return steady and (by_source or one_layout)
        return True
