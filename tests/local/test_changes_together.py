"""Changes with other drivers, other queries, columns that grow, and rows that name their tables."""

from datetime import timedelta

import pytest

from tests.changed_target import FIRST, Changed, ChangedTarget
from tests.fan_out import running
from tests.flows import columns, create_table
from tests.tiers import first_of
from yt_exactly_once import Changes, Event, RetryPolicy, SinkOptions, Target
from yt_exactly_once.errors import ConfigError, FencedError, SchemaMismatchError
from yt_exactly_once.spark.engine.engine import Engine
from yt_exactly_once.spark.modes import mode_of

FAST = RetryPolicy(attempts=4, first_wait=timedelta(0), max_wait=timedelta(0))
MOMENTS = first_of([Event.TRANSACTION_STARTED, Event.LEDGER_RECORDED, Event.ROWS_WRITTEN], count=2)
"""When another writer commits, in the midst of an attempt."""


@pytest.fixture
def shared(cluster, client, tmp):
    return ChangedTarget(client, cluster.proxy_urls[0], f"{tmp}/customers").filled()


def once_at(moment, act):
    """Return a listener that acts at the first such event."""
    done = []

    def listen(event, _fields):
        if event == moment and not done:
            done.append(event)
            act()

    return listen


CASES = {
    "a newer row": [(1, 30, "u", "new")],
    "a newer delete": [(1, 30, "d", None)],
    "an older row": [(1, 15, "u", "old")],
    "an older delete": [(1, 15, "d", None)],
    "a newer row of a deleted key": [(2, 30, "c", "back")],
    "a newer delete of a deleted key": [(2, 30, "d", None)],
    "a late row of a deleted key": [(2, 15, "c", "late")],
    "a row of a new key": [(3, 30, "c", "new")],
    "a delete of a new key": [(3, 30, "d", None)],
    "an older row of a new key": [(3, 5, "c", "old")],
}
"""What the other writer commits, beside changes of all three keys with the sequence 25."""

OURS = [(1, 25, "u", "ours"), (2, 25, "c", "ours"), (3, 25, "c", "ours")]
OUR_DELETES = [(key, 25, "d", None) for key in (1, 2, 3)]


def in_order(*changes):
    table = {}
    for key, _, op, name in sorted(changes, key=lambda one: one[1]):
        table.pop(key, None)
        if op != "d":
            table[key] = name
    return table


@pytest.mark.parametrize("ours", [OURS, OUR_DELETES], ids=["rows", "deletes"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("case", CASES)
def test_two_queries_leave_what_the_sequence_says(shared, case, moment, ours):
    """Whichever commits first, and whatever of the other one it has seen."""
    theirs = CASES[case]

    def other():
        shared.write(*theirs, query="other")

    shared.write(*ours, number=1, listener=once_at(moment, other), retry=FAST)
    assert shared.rows == in_order(*FIRST, *ours, *theirs)


@pytest.mark.parametrize("moment", [Event.BATCH_COMPUTED, *MOMENTS])
def test_older_driver_of_a_query_is_fenced(shared, moment):
    """It has compared its changes with what was there; the newer one has written this batch and the next."""

    def newer():
        shared.write((1, 25, "u", "newer"), number=1, run="newer")
        shared.write((1, 35, "d", None), (3, 5, "c", "Eve"), number=2, run="newer")

    with pytest.raises(FencedError):
        shared.write(
            (1, 30, "u", "zombie"), (3, 4, "d", None), number=1, run="older",
            listener=once_at(moment, newer), retry=FAST,
        )  # fmt: skip
    assert (shared.rows, shared.tombstones[1]) == ({3: "Eve"}, 35)


def test_two_queries_of_one_name_have_ledger_entries_of_their_own(shared):
    """Nothing that a query is called decides anything: its id does."""
    for query in ("one", "two"):
        shared.write((1, 30, "u", "Eve"), (4, 1, "d", None), query=query)
    assert shared.rows == {1: "Eve"}
    rows = shared.client.select_rows(f"query_id from [{shared.ledger}]")
    assert {row["query_id"] for row in rows} == {"query", "one", "two"}


# Columns that grow

ADD = {"on_new_columns": "add"}


def names(client, path):
    return [column["name"] for column in client.get(f"{path}/@schema")]


def test_changes_bring_a_column_that_the_target_lacks(shared, client):
    """Late ones too. An older program is refused: it would write null where the newer one has a value."""
    adds = shared.target(**ADD)
    shared.write((1, 5, "u", "late"), (3, 30, "c", "Eve"), number=1, given=adds, city="Riga")
    rows = {row["key"]: row["city"] for row in client.select_rows(f"* from [{shared.path}]")}
    assert (shared.rows, rows) == ({1: "Ann", 3: "Eve"}, {1: None, 3: "Riga"})
    assert names(client, shared.beside) == ["key", "lsn"]
    with pytest.raises(SchemaMismatchError, match="city"):
        shared.write((1, 40, "u", "old program"), number=2, given=adds, run="old program")
    shared.write((1, 40, "d", None), (2, 15, "c", "late"), number=2, given=adds, city="Oslo")
    assert (shared.rows, shared.tombstones) == ({3: "Eve"}, {1: 40, 2: 20})


def test_sequence_may_be_the_column_that_the_target_lacks(cluster, client, tmp):
    """Its tombstones are created once it is there. Any change is newer than a row without a sequence."""
    path = f"{tmp}/plain"
    create_table(client, path, columns({"key": "int64", "name": "utf8?"}, ["key"]))
    client.insert_rows(path, [{"key": 1, "name": "Ann"}, {"key": 2, "name": "Bob"}])
    plain = ChangedTarget(client, cluster.proxy_urls[0], path)
    plain.write((1, 3, "u", "Eve"), (4, 3, "d", None), given=plain.target(**ADD))
    assert (plain.rows, plain.tombstones) == ({1: "Eve", 2: "Bob"}, {4: 3})
    assert names(client, plain.beside) == ["key", "lsn"]


def test_sequence_grows_in_the_target_and_beside_it(cluster, client, tmp):
    path, narrow = f"{tmp}/narrow", {"key": "int64", "name": "utf8?", "lsn": "int16?"}
    create_table(client, path, columns(narrow, ["key"]))
    grown = ChangedTarget(client, cluster.proxy_urls[0], path)
    create_table(client, grown.beside, columns({"key": "int64", "lsn": "int16?"}, ["key"]))
    grown.write((1, 2**40, "d", None), (2, 2**41, "c", "Bob"), given=grown.target(**ADD))
    assert (grown.rows, grown.tombstones) == ({2: "Bob"}, {1: 2**40})


def test_sequence_that_is_ignored_cannot_order_anything(cluster, client, tmp):
    create_table(client, f"{tmp}/plain", columns({"key": "int64", "name": "utf8?"}, ["key"]))
    plain = ChangedTarget(client, cluster.proxy_urls[0], f"{tmp}/plain")
    with pytest.raises(ConfigError, match="names lsn, which the table lacks"):
        plain.write((1, 3, "u", "Eve"), given=plain.target(on_new_columns="ignore"))
    assert not client.exists(plain.beside)


def test_columns_that_grow_are_met_by_a_run_that_has_changes(shared, monkeypatch):
    """Another driver widens the table between two batches of a run."""
    monkeypatch.setattr("yt_exactly_once.delivery.memory.LOOK_INTERVAL", -1.0)
    engine = Engine(mode_of(SinkOptions(shared.target(), proxy=shared.proxy), shared.connection))
    engine.deliver(running(1), Changed((1, 30, "u", "Eve")))
    shared.write((5, 1, "c", "Zoe"), query="other", given=shared.target(**ADD), city="Riga")
    engine.deliver(running(2), Changed((1, 25, "u", "late"), (6, 1, "c", "Max")))
    assert shared.rows == {1: "Eve", 5: "Zoe", 6: "Max"}


@pytest.mark.parametrize(("options", "what"), [
    ({"changes": Changes(sequence="lsn")}, "changes and a path"),
    (ADD, "on_new_columns='add' and a path"),
])  # fmt: skip
def test_what_one_table_has_is_refused_for_tables_of_rows(options, what):
    with pytest.raises(ConfigError, match=what):
        Target("//home/{shop}/orders", **options)
