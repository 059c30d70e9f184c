"""How the rows of a batch get to the cluster: a value, chosen before they are computed.

`choose_route` is pure. It asks nothing and remembers nothing, so the table of the documentation and the tests
ask it for every combination of facts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from yt_exactly_once import config
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.commit.transactional import SHARE_AHEAD

AUTO = "auto"
"""Lets the sink choose, for each target or batch."""

LARGE = 64 << 20
"""Bytes of encoded rows from which on tasks send them, where the sink may choose."""


class Way(StrEnum):
    """Who sends the rows, and in which transaction.

    Attributes:
        COLLECT: they come to the driver, which sends them in the transaction of the batch.
        JOIN: tasks send them into the transaction that the driver has open.
        TASKS: tasks send them, each request in a transaction of its own.
        FOR_TASKS: they come to the driver, which sends the requests that the tasks would send.
    """

    COLLECT = "driver, in one transaction"
    JOIN = "tasks, in the driver's transaction"
    TASKS = "tasks, each request by itself"
    FOR_TASKS = "driver, each request by itself"

    @property
    def sent_by(self) -> SentBy:
        """Who sends the rows."""
        return SentBy.DRIVER if self in {Way.COLLECT, Way.FOR_TASKS} else SentBy.TASKS


class LookUp(StrEnum):
    """When the ledger is asked whether the batch is written.

    Attributes:
        FIRST: before the rows are computed.
        BESIDE: while Spark computes them, and before the first request that writes.
        INSIDE: by the check in the transaction alone.
    """

    FIRST = "before the rows"
    BESIDE = "beside the rows"
    INSIDE = "in the transaction"


class Failure(StrEnum):
    """Why a route was left before anything of the batch was visible.

    Attributes:
        TOO_LARGE: the rows do not fit the driver.
        PARTITIONS_UNKNOWN: the ends of Arrow batches do not tell the Spark partitions apart.
        REFUSED: the plan of the query does not let tasks write into one transaction.
        TOO_OLD: the transaction began before rows that a tablet has flushed since.
        FAILED: a task, a request or the commit of rows that tasks have sent.
    """

    TOO_LARGE = "too large for the driver"
    PARTITIONS_UNKNOWN = "partitions are not told apart"
    REFUSED = "tasks are refused"
    TOO_OLD = "the transaction is too old"
    FAILED = "tasks have failed"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a batch before its rows are computed.

    Attributes:
        one_transaction: whether the mode has all rows of the batch in one transaction.
        sent_by: the option.
        keeps_state: whether the rows can be computed only once.
        several_targets: whether the rows are written into several tables.
        follows: whether this run and the ledger agree about the batch before.
        arrived: the way that the rows have taken already, as they do for a writer; `None` if they have not.
        bytes_before: encoded rows of the batch before; 0 where it is not known.
        seconds_before: how long computing it took; `None` where it is not known.
        is_sorted: whether the first target is a sorted table.
        obstacle: the option that needs all rows at one place; `None` without one.
        refusal: why this run was refused rows from tasks; `None` where it was not.
        has_sessions: whether producer sessions have rows of the batch already.
        too_large: whether the rows of a batch of this run did not fit the driver.
        uneven: whether the ends of Arrow batches have failed this run.
        outlived: whether a transaction of this run, into which tasks have sent, was refused as too old.
        tried: ways that this batch has left.
    """

    one_transaction: bool
    sent_by: str = AUTO
    keeps_state: bool = False
    several_targets: bool = False
    follows: bool = False
    arrived: Way | None = None
    bytes_before: int = 0
    seconds_before: float | None = None
    is_sorted: bool = False
    obstacle: str | None = None
    refusal: str | None = None
    has_sessions: bool = False
    too_large: bool = False
    uneven: bool = False
    outlived: bool = False
    tried: frozenset[Way] = frozenset()

    def after_look_up(self, bytes_before: int, *, has_sessions: bool) -> Facts:
        """Return what is known once the ledger has been asked."""
        return replace(self, bytes_before=bytes_before, has_sessions=has_sessions)

    def after(
        self, route: Route, failure: Failure | None, reason: str | None = None
    ) -> Facts | None:
        """Return what is known when a route has failed; `None` if no other route is left.

        Args:
            reason: of a refusal.
        """
        tried = self.tried | {route.way}
        match failure:
            case Failure.PARTITIONS_UNKNOWN if route.by_ends:
                return replace(self, uneven=True)
            case Failure.TOO_LARGE if route.is_repeatable and route.way.sent_by is SentBy.DRIVER:
                known = replace(self, too_large=True, tried=tried)
            case Failure.REFUSED if route.way is Way.JOIN and self.sent_by != SentBy.TASKS:
                known = replace(self, refusal=reason, tried=tried)
            case Failure.TOO_OLD if route.way is Way.JOIN:
                known = replace(self, outlived=True, tried=tried)
            case Failure.FAILED if route.way is Way.JOIN:
                known = replace(self, tried=tried)
            case _:
                return None
        return None if choose_route(known).way in tried else known


@dataclass(frozen=True)
class Route:
    """How the rows of one batch get to the cluster.

    Attributes:
        reason: why this way, for people.
        look_up: when the ledger is asked.
        opens_ahead: whether the transaction is opened while the rows are computed.
        by_ends: whether the driver goes by the ends of Arrow batches to tell Spark partitions apart.
        keeps_rows: whether Spark keeps the rows once they are computed, for several jobs over them.
        is_repeatable: whether they can come another way if this one fails.
    """

    way: Way
    reason: str
    look_up: LookUp
    opens_ahead: bool
    by_ends: bool
    keeps_rows: bool
    is_repeatable: bool


@dataclass(frozen=True)
class Rule:
    """One line of the table of routes: of those that fit a batch the first one counts.

    Attributes:
        batch: which batches it fits, for people.
        why: the reason for the way, for people.
        detail: more for people, of one batch.
    """

    batch: str
    fits: Callable[[Facts], bool]
    way: Way
    why: str
    detail: Callable[[Facts], str | None] = lambda _: None


def _is_large(facts: Facts) -> bool:
    return facts.too_large or facts.bytes_before >= LARGE


def _against_tasks(facts: Facts) -> str | None:
    """Return what speaks against tasks, whatever the options say; `None` if nothing does."""
    if Way.JOIN in facts.tried:
        return "a task of it has failed"
    if facts.refusal is not None:
        return facts.refusal
    if Way.COLLECT in facts.tried:
        return None
    if facts.is_sorted and (facts.seconds_before or 0) > config.LEASE.total_seconds():
        # Tablet nodes look for conflicts of sorted rows about as far back as a lease is long.
        return "the target is sorted, and computing the batch before took longer than a lease"
    return "an earlier transaction of tasks was refused as too old" if facts.outlived else None


_PLANNED = "it was planned so"
_NO_COPY = "no row passes the driver"
_SHORTER = "the way into a Python task and back would take longer than the rest"

ONE_TRANSACTION = (
    Rule(
        '`sent_by="tasks"`, and no task of it has failed',
        lambda one: one.sent_by == SentBy.TASKS and Way.JOIN not in one.tried,
        Way.JOIN,
        _NO_COPY,
    ),
    Rule(
        '`sent_by="driver"`. Or the batch is not known to be large. The one before had less than 64 MiB of '
        "encoded rows, or is not known, and the rows of this one fit the driver",
        lambda one: one.sent_by == SentBy.DRIVER or not _is_large(one),
        Way.COLLECT,
        _SHORTER,
    ),
    Rule(
        "an option needs all rows at one place: `changes`, `split_oversized`, a path with columns in braces, "
        "the backend `rpc`",
        lambda one: one.obstacle is not None,
        Way.COLLECT,
        "only who has all changes of a key knows the newest one. An oversized batch fits no single "
        "transaction. Tables must be there before the transaction begins. Over RPC only one process can "
        "write into a transaction",
        lambda one: one.obstacle,
    ),
    Rule(
        "tasks cannot send it. One of them has failed. Or they were refused an earlier batch: rows in one "
        "order of the driver, fewer tablets than tasks, no table for claims. Or the target is sorted, and "
        "computing the batch before took longer than a lease. Or an earlier transaction of tasks was refused "
        "as too old, since others write to the same ledger, consumer or target",
        lambda one: _against_tasks(one) is not None,
        Way.COLLECT,
        "a task cannot take back what it has sent, and a transaction may be too old at its commit",
        _against_tasks,
    ),
    Rule("anything else", lambda _: True, Way.JOIN, _NO_COPY),
)
"""For modes that have all rows of a batch in one transaction."""

SEVERAL_TRANSACTIONS = (
    Rule(
        "producer sessions have rows of it",
        lambda one: one.has_sessions,
        Way.TASKS,
        "tasks compare the rows first",
    ),
    Rule(
        "its rows do not fit the driver",
        lambda one: one.too_large and one.sent_by != SentBy.DRIVER,
        Way.TASKS,
        _NO_COPY,
    ),
    Rule(
        '`sent_by="driver"`',
        lambda one: one.sent_by == SentBy.DRIVER,
        Way.FOR_TASKS,
        "you asked for it",
    ),
    Rule('`sent_by="tasks"`', lambda one: one.sent_by == SentBy.TASKS, Way.TASKS, _NO_COPY),
    Rule(
        "the query keeps state",
        lambda one: one.keeps_state,
        Way.TASKS,
        "its rows can be computed only once",
    ),
    Rule(
        "the batch before had less than 64 MiB of encoded rows",
        lambda one: 0 < one.bytes_before < LARGE,
        Way.FOR_TASKS,
        _SHORTER,
    ),
    Rule("anything else", lambda _: True, Way.TASKS, _NO_COPY),
)
"""For modes whose requests are transactions of their own."""


def choose_route(facts: Facts) -> Route:
    """Choose the route of a batch. A mode refuses in `Mode.prepare` what has none."""
    rules = ONE_TRANSACTION if facts.one_transaction else SEVERAL_TRANSACTIONS
    rule = next(each for each in rules if each.fits(facts))
    detail, way = rule.detail(facts), facts.arrived or rule.way
    has_arrived = facts.arrived is not None
    look_up = LookUp.FIRST
    if facts.follows and facts.one_transaction:
        look_up = LookUp.INSIDE
    elif facts.follows and way is Way.FOR_TASKS:
        # Nothing is written before all rows are here, and the answer comes until then.
        look_up = LookUp.BESIDE
    lease, seconds = config.LEASE.total_seconds(), facts.seconds_before
    is_short = seconds is not None and seconds * SHARE_AHEAD <= lease
    # Rows can be computed again, with numbers, if too many of them pass for those of one partition.
    is_final = facts.uneven or facts.keeps_state or has_arrived
    keeps_rows = facts.several_targets
    if facts.one_transaction and facts.keeps_state:
        # A task that fails has the rows sent again, which must not be computed again.
        keeps_rows |= Way.JOIN in {way, *facts.tried}
    return Route(
        way=way,
        reason=_PLANNED if has_arrived else f"{rule.batch} ({detail})" if detail else rule.batch,
        look_up=look_up,
        opens_ahead=(is_short and not has_arrived and not facts.outlived) or way is Way.JOIN,
        by_ends=way.sent_by is SentBy.DRIVER and 0 < facts.bytes_before < LARGE and not is_final,
        keeps_rows=keeps_rows,
        is_repeatable=keeps_rows or not facts.keeps_state,
    )
