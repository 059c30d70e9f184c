"""Facts about claims: who of several tasks writes into a transaction, and that it gets their rows."""

from __future__ import annotations

from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.operations.verify.stage import CONFLICT, Facts, Stage, expect

_STORE = "yt/yt/server/node/tablet_node/sorted_dynamic_store.cpp"
_POOL = "yt/yt/client/api/sticky_transaction_pool.cpp"
_PARTITION = 0

fact = Facts("Rows from tasks", features=(DeliveryMode.TRANSACTIONAL,), source=_STORE)


@fact("claims.first-committer")
def _first_claim_wins(stage: Stage) -> None:
    """In a sorted table whose rows expire, two transactions see no row, and both write it. The second commit
    is refused with code 1700. A transaction that begins later sees the row of the first.

    Two attempts of a task could both send its rows, which would be there twice. Start the sink with
    sent_by='driver'.
    """
    path = stage.path("claims")
    key = {"transaction_id": "1-2-3-4", "target": "//t", "partition": _PARTITION}
    with stage.transaction(0) as slower, stage.transaction(1) as faster:
        for transaction, owner in ((slower, "slower"), (faster, "faster")):
            expect(transaction.lookup(path, [key]) == [None], "a row is there that nobody wrote")
            transaction.insert(path, [{**key, "owner": owner}])
        faster.commit()
        with stage.refuses(CONFLICT, "both of two transactions wrote a row that neither had seen"):
            slower.commit()
    with stage.transaction() as later:
        (row,) = later.lookup(path, [key])
    expect(row is not None and row["owner"] == "faster", f"a later transaction sees {row}")


@fact("claims.joined", source=_POOL)
def _rows_of_another_client(stage: Stage) -> str | None:
    """Another client writes into an open transaction by its id, at the proxy that has started it. Its rows
    are there after the commit, and not before.

    A job whose tasks send the rows would fail, and the batch would go through the driver. Start the sink with
    sent_by='driver'.
    """
    if not stage.connection.shares_transactions:
        return "not over this backend: there the driver sends all rows"
    rows = stage.path("rows")
    with stage.transaction() as transaction:
        joined = stage.connection.joined(transaction.id, proxy=transaction.proxy)
        joined.insert(rows, [{"k": "joined", "v": "x"}])
        expect(stage.rows("rows", "joined") == [None], "the row is there before the commit")
        transaction.commit()
    expect(stage.rows("rows", "joined") != [None], "the row of another client is missing")
    return None
