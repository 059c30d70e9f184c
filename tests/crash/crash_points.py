"""Every place where a driver may die during a batch, and what follows from dying there.

One list for the crash tests, which kill a driver at each of them in every mode, and for the failure table
of the documentation, which is generated from it. The sink does not know them: a driver dies in the
listener of its sink, at an event.
"""

from dataclasses import dataclass
from enum import Enum

from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.observability import Event


class Visible(Enum):
    """How much of batch N a reader of the target sees."""

    NOTHING = "nothing"
    SOME = "some"
    ALL = "all"


@dataclass(frozen=True)
class Aftermath:
    """What a driver leaves behind that died at one point.

    Attributes:
        visible: rows of batch N that are in the target.
        committed: whether the ledger holds batch N, whole.
        cluster_holds: what is in the cluster then.
        we_do: what the sink does with the replay.
    """

    visible: Visible
    committed: bool
    cluster_holds: str
    we_do: str


_NOTHING = Aftermath(
    Visible.NOTHING,
    committed=False,
    cluster_holds="Batches up to N-1",
    we_do="Finds no entry for N and writes it, as in a first run",
)
_OPEN = Aftermath(
    Visible.NOTHING,
    committed=False,
    cluster_holds="Batches up to N-1; an open transaction, invisible until its lease ends it",
    we_do=_NOTHING.we_do,
)
_SOME_PARTS = Aftermath(
    Visible.SOME,
    committed=False,
    cluster_holds="Batches up to N-1; the first parts of N, and an entry with their digests",
    we_do="Compares the digests, skips the parts that are there and writes the others",
)
_SOME_ROWS = Aftermath(
    Visible.SOME,
    committed=False,
    cluster_holds="Offsets and ledger up to N-1; some rows of N",
    we_do="Finds no entry for N and writes it: `idempotent` drops the rows that are there, "
    "`at-least-once` writes them a second time",
)
_ALL_ROWS = Aftermath(
    Visible.ALL,
    committed=False,
    cluster_holds="Offsets and ledger up to N-1; all rows of N",
    we_do=_SOME_ROWS.we_do,
)
_DONE = Aftermath(
    Visible.ALL,
    committed=True,
    cluster_holds="Batch N: rows, offsets and ledger entry",
    we_do="Finds the entry for N and skips; evaluates a stateful DataFrame, which builds its state "
    "again",
)
_UNKNOWN = "Finds the entry for N and skips, or finds none and writes; it never guesses"


@dataclass(frozen=True)
class Crash:
    """What dying at one point means.

    Attributes:
        moment: when the driver dies, within batch N.
        event: the event after which it dies; `None` when no event of the sink tells it.
        transactional: what is left in transactional mode; `None` when it never passes here.
        from_tasks: the same in the modes whose tasks write, `at-least-once` and `idempotent`.
    """

    moment: str
    event: Event | None
    transactional: Aftermath | None
    from_tasks: Aftermath | None

    def aftermath(self, mode: DeliveryMode) -> Aftermath | None:
        """Return what a driver leaves behind in a mode; `None` when it never passes here."""
        return self.transactional if mode is DeliveryMode.TRANSACTIONAL else self.from_tasks


class CrashPoint(Enum):
    """The points, in the order in which a batch passes them."""

    BATCH_STARTED = Crash(
        "before the first request to the cluster", Event.BATCH_STARTED, _NOTHING, _NOTHING
    )
    LEDGER_READ = Crash(
        "after the look-up, before the rows are computed", Event.LEDGER_READ, _NOTHING, _NOTHING
    )
    TASKS_WRITING = Crash("while the tasks write, with some rows sent", None, None, _SOME_ROWS)
    BATCH_COMPUTED = Crash(
        "with all rows computed, before the first attempt",
        Event.BATCH_COMPUTED,
        _NOTHING,
        _ALL_ROWS,
    )
    TRANSACTION_STARTED = Crash(
        "with an empty transaction open", Event.TRANSACTION_STARTED, _OPEN, _ALL_ROWS
    )
    ROWS_WRITTEN = Crash("with the rows in an open transaction", Event.ROWS_WRITTEN, _OPEN, None)
    OFFSETS_ADVANCED = Crash(
        "with the offsets in an open transaction", Event.OFFSETS_ADVANCED, _OPEN, _ALL_ROWS
    )
    LEDGER_RECORDED = Crash(
        "with everything in an open transaction, before the commit is sent",
        Event.LEDGER_RECORDED,
        _OPEN,
        _ALL_ROWS,
    )
    PART_COMMITTED = Crash(
        "between two parts of a batch that is written in several (`split_oversized`)",
        Event.TRANSACTION_COMMITTED,
        _SOME_PARTS,
        None,
    )
    COMMIT_OUTCOME_UNKNOWN = Crash(
        "with the commit sent and its answer lost",
        Event.COMMIT_OUTCOME_UNKNOWN,
        Aftermath(
            Visible.ALL,
            committed=True,
            cluster_holds=f"{_DONE.cluster_holds}, all at once; or none of it if the request was "
            "lost as well",
            we_do=_UNKNOWN,
        ),
        Aftermath(
            Visible.ALL,
            committed=True,
            cluster_holds=f"{_DONE.cluster_holds}; or only its rows if the request was lost as well",
            we_do=_UNKNOWN,
        ),
    )
    TRANSACTION_COMMITTED = Crash(
        "right after the commit was answered", Event.TRANSACTION_COMMITTED, _DONE, _DONE
    )
    BATCH_COMMITTED = Crash("at the end of the sink's call", Event.BATCH_COMMITTED, _DONE, _DONE)
    SINK_RETURNED = Crash(
        "after the sink returned, before Spark logs the batch as done", None, _DONE, _DONE
    )
    REPLAY_SKIPPED = Crash(
        "in a replay that was skipped, before Spark logs the batch as done",
        Event.BATCH_SKIPPED,
        _DONE,
        _DONE,
    )
