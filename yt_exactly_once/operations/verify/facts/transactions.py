"""Facts about tablet transactions: what they see, who wins, how they end."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa

from yt_exactly_once import errors
from yt_exactly_once.codec.rows import WireFormat, encode
from yt_exactly_once.codec.schema import TableSchema, check_frame
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.config import ROWS_PER_TABLET_LIMIT, DeliveryMode
from yt_exactly_once.operations.verify.stage import CONFLICT, EVERY_MODE, Facts, Stage, expect
from yt_exactly_once.ytsaurus.client import threads
from yt_exactly_once.ytsaurus.transaction import TabletTransaction

_RETRIED = errors.TransientError, None
_OPEN = errors.CommitOutcomeUnknownError, None
_TOO_MANY_ROWS = errors.BatchTooLargeError, 1717
_SCHEMA_VIOLATION = errors.SchemaMismatchError, 307
_SHORT_LEASE = timedelta(seconds=1)
_ALL = 100_000
"""More rows than the table gets."""

_NATIVE = "yt/yt/ytlib/api/native/transaction.cpp"
_STORE = "yt/yt/server/node/tablet_node/sorted_dynamic_store.cpp"
_POOL = "yt/yt/client/api/sticky_transaction_pool.cpp"
_GUIDE = "user guide: dynamic tables, transactions"

fact = Facts("Tablet transactions", features=EVERY_MODE, source=_GUIDE)


@fact("transaction.atomic")
def _appear_together(stage: Stage) -> None:
    """Rows of a sorted and of an ordered table are invisible until the commit, to the transaction itself too.
    Then both are there.

    A batch would not appear as a whole. Rows, offsets and the ledger could contradict each other after a
    crash. Do not use the package on this cluster.
    """
    offset = stage.end("log")
    with stage.transaction() as transaction:
        transaction.insert(stage.path("rows"), [{"k": "together", "v": "x"}])
        transaction.insert(stage.path("log"), [{"v": "together"}])
        own = transaction.lookup(stage.path("rows"), [{"k": "together"}])
        listed = transaction.select(stage.path("rows"), ["k"], limit=_ALL)
        its_own = own != [None] or b"together" in listed
        expect(not its_own, "a transaction reads its own writes before the commit")
        expect(stage.rows("rows", "together") == [None], "others read writes before the commit")
        expect(not stage.texts("log", offset=offset), "others read appends before the commit")
        transaction.commit()
    expect(stage.rows("rows", "together") != [None], "the row is missing after the commit")
    stage.appears("log", "together", offset=offset)


@fact("transaction.abort")
def _abort_leaves_nothing(stage: Stage) -> None:
    """An aborted transaction leaves neither rows nor appends.

    A failed attempt would leave rows behind, and its retry would duplicate them.
    """
    offset = stage.end("log")
    with stage.transaction() as transaction:
        transaction.insert(stage.path("rows"), [{"k": "aborted", "v": "x"}])
        transaction.insert(stage.path("log"), [{"v": "aborted"}])
    stage.insert("log", {"v": "after the abort"})
    stage.appears("log", "after the abort", offset=offset)
    expect(stage.rows("rows", "aborted") == [None], "a row of an aborted transaction is there")


@fact("transaction.snapshot")
def _reads_stay_at_the_start(stage: Stage) -> None:
    """Lookups and queries inside a transaction see the rows as of its start.

    The sink checks the ledger and the offsets inside the transaction. With newer reads, a conflict could pass
    unnoticed between the check and the commit.
    """
    names = ("snapshot", "snapshot-deleted", "snapshot-later")
    changed, deleted, later = ({"k": name, "v": "old"} for name in names)
    stage.insert("rows", changed, deleted)
    path = stage.path("rows")
    with stage.transaction() as transaction:
        stage.insert("rows", {**changed, "v": "new"}, later)
        stage.delete("rows", deleted["k"])
        found = transaction.lookup(path, [{"k": name} for name in names])
        expect(
            [row and row["v"] for row in found] == ["old", "old", None],
            "a lookup inside a transaction does not return the rows as of its start",
        )
        selected = transaction.select(path, ["k"], limit=_ALL)
        expect(
            b"snapshot-deleted" in selected and b"snapshot-later" not in selected,
            "a query inside a transaction does not return the rows as of its start",
        )


@fact("transaction.first-committer", source=_STORE)
def _first_committer_wins(stage: Stage) -> str:
    """Of two overlapping transactions that write one sorted row, the second commit is refused with code 1700,
    and none of its rows is there.

    The ledger row would not fence a second driver or a late commit. Batches could be written twice. Do not
    use the package on this cluster.
    """
    offset = stage.end("log")
    rows, log = stage.path("rows"), stage.path("log")
    with stage.transaction(0) as loser, stage.transaction(1) as winner:
        loser.lookup(rows, [{"k": "race"}])
        loser.insert(rows, [{"k": "race", "v": "loser"}])
        loser.insert(log, [{"v": "of the loser"}])
        winner.insert(rows, [{"k": "race", "v": "winner"}])
        winner.commit()
        with stage.refuses(CONFLICT, "both of two overlapping writers of a row committed") as codes:
            loser.commit()
    (row,) = stage.rows("rows", "race")
    expect(row is not None and row["v"] == "winner", "the row of the refused transaction is there")
    stage.insert("log", {"v": "after the race"})
    stage.appears("log", "after the race", offset=offset)
    return f"1700 is at depth {codes.index(1700)} of the error"


@fact("transaction.plain-writes", source=_STORE)
def _plain_writes_conflict(stage: Stage) -> None:
    """A plain insert or delete of a row refuses a transaction that began before it and writes the same row.

    An offset that somebody moves by hand during a batch would be overwritten silently.
    """
    writes: list[Callable[[], None]] = [
        lambda: stage.insert("rows", {"k": "plain"}),
        lambda: stage.delete("rows", "plain"),
    ]
    for write in writes:
        with stage.transaction() as transaction:
            transaction.insert(stage.path("rows"), [{"k": "plain", "v": "x"}])
            write()
            but = "a transaction overwrote a row that was written without one after it began"
            with stage.refuses(CONFLICT, but):
                transaction.commit()


@fact("transaction.deletes", features=(DeliveryMode.TRANSACTIONAL,), source=_STORE)
def _deletes_conflict(stage: Stage) -> None:
    """A delete of a key that has no row refuses a transaction that began before it and writes that key.

    With changes a late row of one query could bring back a key that another query deletes. Let only one query
    write such a target.
    """
    rows = stage.path("rows")
    with stage.transaction(0) as late, stage.transaction(1) as deleting:
        late.insert(rows, [{"k": "deleted", "v": "late"}])
        deleting.delete(rows, [{"k": "deleted"}])
        deleting.commit()
        but = "a transaction wrote a key that another one had deleted after it began"
        with stage.refuses(CONFLICT, but):
            late.commit()


@fact("transaction.appends", source="user guide: ordered dynamic tables")
def _appends_never_conflict(stage: Stage) -> None:
    """Appends of overlapping transactions both commit. The rows of each stay together and in order.

    Two queries could not write to one ordered table, or the rows of a batch would lose their order.
    """
    offset = stage.end("log")
    log = stage.path("log")
    with stage.transaction(0) as first, stage.transaction(1) as second:
        first.insert(log, [{"v": "a"}, {"v": "b"}])
        second.insert(log, [{"v": "c"}])
        first.insert(log, [{"v": "d"}])
        second.commit()
        first.commit()
    stage.wait(
        lambda: len(stage.texts("log", offset=offset)) == len("abcd"),
        lambda: f"the appended rows are {stage.texts('log', offset=offset)}",
    )
    found = "".join(stage.texts("log", offset=offset))
    expect(found in {"abdc", "cabd"}, f"the rows of two transactions are mixed: {found}")


@fact("transaction.connections", features=(DeliveryMode.TRANSACTIONAL,), source=_POOL)
def _several_connections(stage: Stage) -> None:
    """Rows sent over several connections to one proxy belong to one transaction.

    Start the sink with connections=1.
    """
    with stage.transaction(0, 1) as transaction:
        transaction.side_by_side(
            [
                lambda sender: sender.insert(stage.path("rows"), [{"k": "sender-0", "v": "x"}]),
                lambda sender: sender.insert(stage.path("rows"), [{"k": "sender-1", "v": "x"}]),
            ]
        )
        transaction.commit()
    expect(
        None not in stage.rows("rows", "sender-0", "sender-1"),
        "rows that were sent over a second connection are missing after the commit",
    )


@fact("transaction.ended", source=_POOL)
def _ended_is_not_found(stage: Stage) -> str:
    """A commit that is sent again is refused with a code that leaves its outcome open.

    After a lost answer the sink asks the ledger only if the error leaves the outcome open. With another code
    it would stop, or repeat a batch that is already written.
    """
    pinned = stage.connection.pinned()
    with stage.transaction() as transaction:
        transaction.insert(stage.path("rows"), [{"k": "twice", "v": "x"}])
        transaction.commit()
    again = TabletTransaction(transaction.id, [pinned.sender(0)], threads("send"), proxy=pinned.url)
    with stage.refuses(_OPEN, "a second commit of a transaction was accepted") as codes:
        again.commit()
    return f"codes {codes}"


@fact("transaction.lease", source="yt/yt/server/node/tablet_node/config.cpp")
def _lease(stage: Stage) -> None:
    """A transaction with a lease of 30 s survives 5 s without a request and then commits. One with a lease of
    1 s does not survive them.

    If the first is lost: big batches fail with TransactionLostError. Lower dyn_batch_size, or raise
    max_transaction_timeout of the tablet nodes. If the second survives: leases are not what the client asks
    for, and abandoned transactions stay longer. That costs nothing else.
    """
    rows = stage.path("rows")
    with stage.transaction(0) as patient, stage.transaction(1, lease=_SHORT_LEASE) as impatient:
        for transaction, key in ((patient, "patient"), (impatient, "impatient")):
            transaction.insert(rows, [{"k": key, "v": "x"}])
        idle = stage.patience.idle.total_seconds()
        time.sleep(idle)
        patient.commit()
        but = f"a transaction with a lease of 1 s was committed after {idle:g} s without a request"
        with stage.refuses(_OPEN, but):
            impatient.commit()
    expect(stage.rows("rows", "impatient") == [None], "the row of an expired transaction is there")


@fact("transaction.row-limit", source="yt/yt/server/node/tablet_node/config.cpp")
def _row_limit(stage: Stage) -> str:
    """One transaction may write 100 000 rows to a tablet, and one more is refused with code 1717.

    If 100 000 rows are refused, set rows_per_tablet_limit of the sink to the cluster's
    max_rows_per_transaction. Until then, big batches fail with BatchTooLargeError at the commit.
    """
    path = stage.path("narrow")
    frame = pa.schema([("n", pa.int64())])
    table = TableSchema.from_yt([{"name": "n", "type": "int64"}])
    plan = check_frame(frame, table, target=path, sorted=False)

    def write(count: int, transaction: TabletTransaction) -> None:
        batch = pa.RecordBatch.from_arrays([pa.nulls(count, pa.int64())], schema=frame)
        transaction.write(
            path, [Payload(count, encode(batch, plan, WireFormat.YSON))], WireFormat.YSON
        )

    with stage.transaction() as transaction:
        write(ROWS_PER_TABLET_LIMIT, transaction)
        transaction.commit()
    with stage.transaction() as transaction:
        write(ROWS_PER_TABLET_LIMIT + 1, transaction)
        with stage.refuses(_TOO_MANY_ROWS, but=None) as codes:
            transaction.commit()
    if not codes:
        return "the limit is higher: rows_per_tablet_limit may be raised to it"
    return f"{ROWS_PER_TABLET_LIMIT} rows fit, one more is refused with 1717"


@fact("transaction.wrong-value", source=_NATIVE)
def _wrong_value(stage: Stage) -> None:
    """A value of a wrong type is refused with code 307, and nothing is written.

    The sink compares schemas before the first row. Without this second check, a schema that changes during a
    query could let wrong values in.
    """
    but = "a text was written into a column of numbers"
    with stage.refuses(_SCHEMA_VIOLATION, but), stage.transaction() as transaction:
        transaction.insert(stage.path("rows"), [{"k": "wrong", "n": "text", "v": "x"}])
        transaction.commit()
    expect(stage.rows("rows", "wrong") == [None], "the refused row is there")


@fact("transaction.unmounted", source="yt/yt/ytlib/api/native/tablet_helpers.cpp")
def _unmounted(stage: Stage) -> str:
    """A commit into a table that was unmounted is refused with an error that the package retries.

    The query would stop when a table is unmounted for maintenance. It loses nothing: start it again.
    """
    with stage.transaction() as transaction:
        transaction.insert(stage.path("remounted"), [{"k": "unmounted", "v": "x"}])
        stage.get("unmounted", "remounted")
        try:
            with stage.refuses(_RETRIED, "rows were committed into an unmounted table") as codes:
                transaction.commit()
        finally:
            stage.get("mounted", "remounted")
    return f"codes {codes}"


@fact("transaction.remount", source="yt/yt/server/node/tablet_node/sorted_chunk_store.cpp")
def _remount(stage: Stage) -> str:
    """A remount between write and commit refuses the commit. So does a row whose history was flushed after
    the start of the transaction. Both errors are retried. The report says whether other rows of the tablet
    are refused too.

    If one was committed: after a remount, of two overlapping writers both could win. Stop queries before you
    unmount the ledger. If one was refused in another way: the query stops. Start it again.
    """
    # An unmount in between, a remount in between, and conflicts that a remount has flushed.
    names = ("remounted", "remounted-log")
    with (
        stage.transaction(0) as early,
        stage.transaction(1) as writing,
        stage.transaction(2) as elsewhere,
    ):
        writing.insert(stage.path("remounted"), [{"k": "a", "v": "x"}])
        writing.insert(stage.path("remounted-log"), [{"v": "x"}])
        stage.insert("remounted", {"k": "b", "v": "x"})
        stage.get("unmounted", *names)
        stage.get("mounted", *names)
        but = "a transaction survived a remount of its tables between write and commit"
        with stage.refuses(_RETRIED, but) as remounted:
            writing.commit()
        early.insert(stage.path("remounted"), [{"k": "b", "v": "y"}])
        but = "a transaction overwrote a row that was written after its start and flushed by an unmount"
        with stage.refuses(_RETRIED, but) as forgotten:
            early.commit()
        elsewhere.insert(stage.path("remounted"), [{"k": "c", "v": "y"}])
        with stage.refuses(_RETRIED, but=None) as others:
            elsewhere.commit()
    return f"codes {remounted} and {forgotten}; of other rows of the tablet {others or 'none'}"
