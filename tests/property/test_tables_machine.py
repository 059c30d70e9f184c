"""Dynamic tables under concurrent transactions against a plain Python model.

The commands run in process, without HTTP, so that many interleavings fit into seconds.
"""

import contextlib
import copy
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from tests.contract.tables import columns, key_columns
from tests.in_process import Commands
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tablets.transactions import TransactionPool

SORTED, ORDERED = "//tmp/sorted", "//tmp/ordered"
TABLETS = 2
TIMEOUT_MS = 10_000
KEY_COUNT = 3
KEYS = st.integers(min_value=0, max_value=KEY_COUNT - 1)
RARELY = st.integers(min_value=0, max_value=4).map(lambda number: number == 4)
VALUES = st.none() | st.integers(min_value=-9, max_value=9)


@dataclass
class Operation:
    kind: str
    key: int = 0
    row: dict[str, Any] = field(default_factory=dict)
    tablet: int = 0


OPERATIONS = st.one_of(
    st.builds(
        Operation,
        kind=st.just("insert"),
        key=KEYS,
        row=st.fixed_dictionaries({"a": VALUES, "b": VALUES}),
    ),
    st.builds(
        Operation,
        kind=st.just("update"),
        key=KEYS,
        row=st.dictionaries(st.sampled_from("ab"), VALUES, min_size=1),
    ),
    st.builds(Operation, kind=st.just("delete"), key=KEYS),
    st.builds(
        Operation,
        kind=st.just("append"),
        row=st.fixed_dictionaries({"a": VALUES}),
        tablet=st.integers(min_value=0, max_value=TABLETS - 1),
    ),
)


@dataclass
class Transaction:
    """What the model knows about one transaction."""

    start: int
    snapshot: dict[int, dict[str, Any]]
    expires: float
    operations: list[Operation] = field(default_factory=list)


class Tables(RuleBasedStateMachine):
    """Two tables, several transactions, and what must be true about them."""

    transactions = Bundle("transactions")

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.now = 0.0
        self.folder = Path(folder)
        self.run = self.opened()
        schema = [*key_columns(key="int64"), *columns(a="int64", b="int64")]
        self.run.table(SORTED, schema, pivot_keys=[[], [2]])
        self.run.table(ORDERED, columns(a="int64"), tablet_count=TABLETS)
        self.rows: dict[int, dict[str, Any]] = {}
        self.written: dict[int, int] = {}
        self.appended: list[list[int | None]] = [[] for _ in range(TABLETS)]
        self.commits = 0
        self.open: dict[str, Transaction] = {}

    def opened(self) -> Commands:
        run = Commands(self.folder)
        run.proxy.transactions.close()
        run.proxy.transactions = TransactionPool(run.proxy.store, clock=lambda: self.now)
        return run

    def teardown(self) -> None:
        self.run.close()
        self.stack.close()

    # What the model does.

    def apply(self, operations: list[Operation]) -> None:
        self.commits += 1
        for operation in operations:
            if operation.kind == "append":
                self.appended[operation.tablet].append(operation.row["a"])
                continue
            self.written[operation.key] = self.commits
            if operation.kind == "delete":
                self.rows.pop(operation.key, None)
            elif operation.kind == "insert":
                self.rows[operation.key] = {"a": None, "b": None, **operation.row}
            else:
                kept = self.rows.get(operation.key, {"a": None, "b": None})
                self.rows[operation.key] = {**kept, **operation.row}

    def conflicts(self, transaction: Transaction) -> bool:
        return any(
            self.written.get(operation.key, 0) > transaction.start
            for operation in transaction.operations
            if operation.kind != "append"
        )

    @contextlib.contextmanager
    def alive(self, transaction_id: str) -> Iterator[Transaction | None]:
        """Expect 11000 for a transaction that has ended, and renew the lease of one that has not."""
        known = self.open.get(transaction_id)
        if known is not None and known.expires <= self.now:
            del self.open[transaction_id]
            known = None
        if known is None:
            with pytest.raises(YtError) as caught:
                yield None
            assert caught.value.code == Code.NO_SUCH_TRANSACTION
            return
        yield known
        known.expires = self.now + TIMEOUT_MS / 1000

    def modify(self, transaction_id: str | None, operation: Operation) -> None:
        send = self.sender(operation, transaction_id)
        if transaction_id is None:
            send()
            self.apply([operation])
            return
        with self.alive(transaction_id) as transaction:
            send()
            if transaction is not None:
                transaction.operations.append(operation)

    def sender(self, operation: Operation, transaction_id: str | None) -> Callable[[], Any]:
        named = {} if transaction_id is None else {"transaction_id": transaction_id}
        if operation.kind == "append":
            row = {**operation.row, "$tablet_index": operation.tablet}
            return lambda: self.run("insert_rows", [row], path=ORDERED, **named)
        key = {"key": operation.key}
        if operation.kind == "delete":
            return lambda: self.run("delete_rows", [key], path=SORTED, **named)
        row = {**key, **operation.row}
        update = operation.kind == "update"
        return lambda: self.run("insert_rows", [row], path=SORTED, update=update, **named)

    def read(self, transaction_id: str | None = None) -> dict[int, dict[str, Any]]:
        named = {} if transaction_id is None else {"transaction_id": transaction_id}
        keys = [{"key": key} for key in range(KEY_COUNT)]
        rows = self.run("lookup_rows", keys, path=SORTED, **named)
        return {row.pop("key"): row for row in rows}

    # What happens.

    @initialize(target=transactions)
    def start_two(self) -> Any:
        return multiple(self.start(), self.start())

    @precondition(lambda self: len(self.open) < 4)
    @rule(target=transactions)
    def start_one(self) -> str:
        return self.start()

    def start(self) -> str:
        answer = self.run("start_transaction", type="tablet", timeout=TIMEOUT_MS)
        transaction_id: str = answer["transaction_id"]
        self.open[transaction_id] = Transaction(
            self.commits, copy.deepcopy(self.rows), self.now + TIMEOUT_MS / 1000
        )
        return transaction_id

    @rule(transaction_id=transactions, operation=OPERATIONS)
    def modify_inside(self, transaction_id: str, operation: Operation) -> None:
        self.modify(transaction_id, operation)

    @rule(operation=OPERATIONS)
    def modify_outside(self, operation: Operation) -> None:
        self.modify(None, operation)

    @rule(transaction_id=transactions)
    def read_inside(self, transaction_id: str) -> None:
        with self.alive(transaction_id) as transaction:
            seen = self.read(transaction_id)
            if transaction is not None:
                assert seen == transaction.snapshot

    @rule(transaction_id=consumes(transactions), operation=OPERATIONS)
    def modify_and_commit(self, transaction_id: str, operation: Operation) -> None:
        self.modify(transaction_id, operation)
        self.commit(transaction_id)

    @rule(transaction_id=consumes(transactions))
    def commit_one(self, transaction_id: str) -> None:
        self.commit(transaction_id)

    def commit(self, transaction_id: str) -> None:
        with self.alive(transaction_id) as transaction:
            if transaction is None:
                self.run("commit_transaction", transaction_id=transaction_id)
                return
            if self.conflicts(transaction):
                with pytest.raises(YtError) as caught:
                    self.run("commit_transaction", transaction_id=transaction_id)
                assert caught.value.code != Code.TRANSACTION_LOCK_CONFLICT
                assert caught.value.contains(Code.TRANSACTION_LOCK_CONFLICT)
            else:
                self.run("commit_transaction", transaction_id=transaction_id)
                self.apply(transaction.operations)
            del self.open[transaction_id]

    @rule(transaction_id=transactions, rare=RARELY)
    def abort(self, transaction_id: str, rare: bool) -> None:
        """The id stays, so that commands also meet transactions that have ended."""
        if not rare:
            return
        with self.alive(transaction_id) as transaction:
            self.run("abort_transaction", transaction_id=transaction_id)
            if transaction is not None:
                del self.open[transaction_id]

    @rule(transaction_id=transactions)
    def ping(self, transaction_id: str) -> None:
        with self.alive(transaction_id):
            self.run("ping_transaction", transaction_id=transaction_id)

    @rule(seconds=RARELY.map(lambda rare: TIMEOUT_MS / 1000 if rare else 3))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(rare=RARELY)
    def restart(self, rare: bool) -> None:
        if not rare:
            return
        self.run.close()
        self.run = self.opened()
        self.open.clear()

    # What is always true.

    @invariant()
    def committed_rows_are_those_of_the_model(self) -> None:
        assert self.read() == self.rows

    @invariant()
    def appended_rows_are_numbered_without_gaps(self) -> None:
        for tablet, expected in enumerate(self.appended):
            rows = self.run("pull_queue", queue_path=ORDERED, offset=0, partition_index=tablet)
            assert [(row["$row_index"], row["a"]) for row in rows] == list(enumerate(expected))


TestTables = Tables.TestCase
TestTables.settings = settings(
    max_examples=80,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
