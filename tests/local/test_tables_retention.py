"""How long the past of sorted tables is kept; in process, with a clock that jumps."""

from __future__ import annotations

import time
from typing import Any

import pytest

from yt_exactly_once.local import commands, store
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.proxy import Proxy
from yt_exactly_once.local.registry import REGISTRY, Context, Rows
from yt_exactly_once.local.tablets.retention import KEPT_SECONDS

TABLE = "//tmp/t"


@pytest.fixture
def run(tmp_path):
    assert commands.VERSION
    proxy = Proxy(tmp_path, "127.0.0.1:1")

    def call(command: str, rows: Any = (), **parameters: Any) -> Any:
        context = Context(proxy, command, parameters)
        context.read_rows = lambda _schema=None, /: list(rows)
        answer = REGISTRY[command].handler(context)
        return list(answer.rows) if isinstance(answer, Rows) else answer

    schema = [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "v", "type": "int64"},
    ]
    call("create", type="table", path=TABLE, attributes={"dynamic": True, "schema": schema})
    call("mount_table", path=TABLE)
    call.proxy = proxy
    yield call
    proxy.transactions.close()
    proxy.close()


@pytest.fixture
def wait(monkeypatch):
    """Let seconds pass on the clock of the cluster."""
    passed = [0.0]
    real = time.time
    monkeypatch.setattr(store.time, "time", lambda: real() + passed[0])

    def advance(seconds: float) -> None:
        passed[0] += seconds

    return advance


def write(run, key, value):
    run("insert_rows", [{"k": key, "v": value}], path=TABLE)


def stored(run, kind):
    with run.proxy.store.read() as connection:
        names = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, 2) = ?",
            (f"{kind}_",),
        ).fetchall()
        counts = [connection.execute(f'SELECT count(*) FROM "{name}"') for (name,) in names]
        return [count.fetchone()[0] for count in counts]


def test_replaced_rows_and_tombstones_are_dropped_after_a_while(run, wait):
    """What no reader may ask for any more takes no space."""
    for value in range(3):
        write(run, 1, value)
    write(run, 2, 0)
    run("delete_rows", [{"k": 2}], path=TABLE)
    assert stored(run, "h") == [3]
    assert stored(run, "s") == [2]
    wait(KEPT_SECONDS + 100)
    write(run, 3, 0)
    assert stored(run, "h") == [0]
    assert stored(run, "s") == [2]


def test_moment_before_the_kept_past_cannot_be_read(run, wait):
    """An answer that might be wrong is an error."""
    write(run, 1, 0)
    moment = run("generate_timestamp")["timestamp"]
    write(run, 1, 1)
    read = {"path": TABLE, "timestamp": moment}
    assert run("lookup_rows", [{"k": 1}], **read) == [{"k": 1, "v": 0}]
    wait(KEPT_SECONDS + 100)
    write(run, 1, 2)
    with pytest.raises(YtError, match="less than the retained timestamp"):
        run("lookup_rows", [{"k": 1}], **read)


def test_transaction_older_than_the_kept_past_cannot_commit(run, wait):
    """Its conflicts can no longer be seen."""
    write(run, 1, 0)
    started = run("start_transaction", type="tablet", timeout=10**9)
    inside = {"path": TABLE, "transaction_id": started["transaction_id"]}
    run("insert_rows", [{"k": 5, "v": 1}], **inside)
    wait(KEPT_SECONDS + 100)
    write(run, 1, 1)
    with pytest.raises(YtError) as caught:
        run("commit_transaction", transaction_id=started["transaction_id"])
    assert caught.value.contains(1729)
