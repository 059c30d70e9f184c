"""Every place where a driver may die during a batch, and what follows from dying there.

One list for the crash tests, which kill a driver at each of them, and for the failure table of the
documentation, which is generated from it. It describes; nothing here runs in production.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from yt_exactly_once.observability import Event


@dataclass(frozen=True)
class Crash:
    """What dying at one point means.

    Attributes:
        moment: when the driver dies, within batch N.
        event: the event after which it dies; `None` when the sink has already returned.
        committed: whether the cluster holds batch N then.
        cluster_holds: what is in the cluster then.
        spark_replays: what Spark does after the restart.
        we_do: what the sink does with it.
    """

    moment: str
    event: Event | None
    committed: bool
    cluster_holds: str
    spark_replays: str
    we_do: str


_REPLAY = "Batch N, from the offsets in its log"
_NOTHING = "Batches up to N-1"
_OPEN = "Batches up to N-1; an open transaction, invisible, which its lease ends"
_ALL = "Batch N: rows, offsets and ledger entry, all at once"
_WRITE = "Finds no entry for N and writes it, as if nothing had happened"
_SKIP = "Finds the entry for N and skips; a stateful frame is evaluated, so that its state is built again"


class CrashPoint(Enum):
    """The points, in the order in which a batch passes them."""

    BATCH_STARTED = Crash(
        "before anything is asked of the cluster",
        Event.BATCH_STARTED,
        committed=False,
        cluster_holds=_NOTHING,
        spark_replays=_REPLAY,
        we_do=_WRITE,
    )
    LEDGER_READ = Crash(
        "after the look-up, before the rows are computed",
        Event.LEDGER_READ,
        committed=False,
        cluster_holds=_NOTHING,
        spark_replays=_REPLAY,
        we_do=_WRITE,
    )
    BATCH_COMPUTED = Crash(
        "with all rows on the driver and none sent",
        Event.BATCH_COMPUTED,
        committed=False,
        cluster_holds=_NOTHING,
        spark_replays=_REPLAY,
        we_do=_WRITE,
    )
    TRANSACTION_STARTED = Crash(
        "with an empty transaction open",
        Event.TRANSACTION_STARTED,
        committed=False,
        cluster_holds=_OPEN,
        spark_replays=_REPLAY,
        we_do=_WRITE,
    )
    ROWS_WRITTEN = Crash(
        "with the rows in an open transaction",
        Event.ROWS_WRITTEN,
        committed=False,
        cluster_holds=_OPEN,
        spark_replays=_REPLAY,
        we_do=_WRITE,
    )
    OFFSETS_ADVANCED = Crash(
        "with rows and offsets in an open transaction",
        Event.OFFSETS_ADVANCED,
        committed=False,
        cluster_holds=_OPEN,
        spark_replays=_REPLAY,
        we_do=_WRITE,
    )
    LEDGER_RECORDED = Crash(
        "with everything in an open transaction, before the commit is sent",
        Event.LEDGER_RECORDED,
        committed=False,
        cluster_holds=_OPEN,
        spark_replays=_REPLAY,
        we_do=_WRITE,
    )
    COMMIT_OUTCOME_UNKNOWN = Crash(
        "with the commit sent and its answer lost",
        Event.COMMIT_OUTCOME_UNKNOWN,
        committed=True,
        cluster_holds=f"{_ALL}, or none of it if the request was lost as well",
        spark_replays=_REPLAY,
        we_do="Finds the entry for N and skips, or finds none and writes; it never guesses",
    )
    TRANSACTION_COMMITTED = Crash(
        "right after the commit was answered",
        Event.TRANSACTION_COMMITTED,
        committed=True,
        cluster_holds=_ALL,
        spark_replays=_REPLAY,
        we_do=_SKIP,
    )
    BATCH_COMMITTED = Crash(
        "at the end of the sink's call",
        Event.BATCH_COMMITTED,
        committed=True,
        cluster_holds=_ALL,
        spark_replays=_REPLAY,
        we_do=_SKIP,
    )
    SINK_RETURNED = Crash(
        "after the sink returned, before Spark logs the batch as done",
        None,
        committed=True,
        cluster_holds=_ALL,
        spark_replays=_REPLAY,
        we_do=_SKIP,
    )
    REPLAY_SKIPPED = Crash(
        "in a replay that was skipped, before Spark logs the batch as done",
        Event.BATCH_SKIPPED,
        committed=True,
        cluster_holds=_ALL,
        spark_replays=f"{_REPLAY}, once more",
        we_do=_SKIP,
    )
