"""The history of batches: what its thread writes and removes, without a cluster."""

from threading import Event as Gate
from types import SimpleNamespace

import pytest

from yt_exactly_once import Event
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.ledger import HISTORY_SCHEMA, LEDGER_SCHEMA
from yt_exactly_once.spark.engine import past_batches
from yt_exactly_once.spark.engine.past_batches import KEPT, PastBatches


@pytest.fixture
def history(monkeypatch):
    """A history whose requests are noted, and which fails if it is told to."""
    made = SimpleNamespace(created=[], stored=[], emitted=[], failure=None, gate=Gate())
    made.gate.set()

    def store(_connection, _path, rows, keys):
        made.gate.wait()
        if made.failure:
            raise made.failure
        made.stored.append((rows, keys))

    monkeypatch.setattr(past_batches, "ensure_table", lambda *given: made.created.append(given))
    monkeypatch.setattr(past_batches, "store_rows", store)
    past = PastBatches(None, "//history")

    def add(number, *targets):
        entry = LedgerEntry("query", "//t", number, "run", "1-2", {})
        past.add(
            entry, targets or ("//t",), lambda *event, **more: made.emitted.append((event, more))
        )

    def write(number, *targets):
        add(number, *targets)
        past._waiting[-1].result()
        return made.stored[-1] if made.stored else None

    made.add, made.write, made.past = add, write, past
    yield made
    made.gate.set()
    past._thread.shutdown()


def test_entry_is_kept_for_every_target(history):
    """In a table that the first batch creates."""
    rows, removed = history.write(7, "//s", "//t")
    assert [(row["target"], row["batch_id"]) for row in rows] == [("//s", 7), ("//t", 7)]
    assert removed == []
    history.write(8)
    assert history.created == [(None, "//history", HISTORY_SCHEMA, {})]


def test_history_has_the_columns_of_the_ledger_with_the_batch_among_the_keys():
    """Each of them once."""
    names = [column["name"] for column in HISTORY_SCHEMA]
    assert sorted(names) == sorted(column["name"] for column in LEDGER_SCHEMA)
    assert names[:3] == ["query_id", "target", "batch_id"]
    keys = [column["name"] for column in HISTORY_SCHEMA if "sort_order" in column]
    assert keys == names[:3]


@pytest.mark.parametrize(
    ("number", "removed"),
    [
        (KEPT - 1, []),
        (KEPT, []),
        (KEPT + 1, []),
        (KEPT + 99, []),
        (KEPT + 100, range(100)),
        (KEPT + 101, []),
        (KEPT + 200, range(100, 200)),
    ],
)
def test_old_batches_are_removed_a_hundred_at_a_time(history, number, removed):
    """The newest thousand stay."""
    _, keys = history.write(number, "//s", "//t")
    assert keys == [
        {"query_id": "query", "target": target, "batch_id": old}
        for target in ("//s", "//t")
        for old in removed
    ]


def test_history_that_cannot_be_written_is_an_event_and_no_error(history):
    """The next batch is written again."""
    history.failure = OSError("away")
    history.write(7)
    assert history.emitted == [((Event.HISTORY_FAILED,), {"path": "//history", "error": "away"})]
    history.failure = None
    history.write(8)
    assert [rows[0]["batch_id"] for rows, _ in history.stored] == [8]


def test_batches_wait_for_a_slow_table_up_to_a_limit(history):
    """Those beyond it are left out. What is written makes room."""
    history.gate.clear()
    for number in range(past_batches._MOST_WAITING + 5):
        history.add(number)
    waiting = list(history.past._waiting)
    assert len(waiting) == past_batches._MOST_WAITING
    history.gate.set()
    for one in waiting:
        one.result()
    history.write(1)
    assert len(history.past._waiting) == 1
    assert len(history.stored) == past_batches._MOST_WAITING + 1
