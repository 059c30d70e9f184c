"""A query whose DataFrame gets columns: what the old and the new driver write, and who is refused."""

from contextlib import suppress
from datetime import timedelta

import pytest
from yt.wrapper import http_driver

from tests.local.operated import Operated
from tests.tiers import first_of
from yt_exactly_once import Event
from yt_exactly_once.errors import FencedError, RetriesExhaustedError, SchemaMismatchError
from yt_exactly_once.ytsaurus import alteration, sender
from yt_exactly_once.ytsaurus.tables import ALTERING

ADD = {"on_new_columns": "add"}


@pytest.fixture
def old(cluster, tmp, tmp_path):
    """A query that has run, with rows to read."""
    made = Operated(cluster, tmp, tmp_path / "checkpoint").create()
    made.feed(4)
    made.run(rows=2)
    made.feed(5)
    return made


def program(query, *columns, **options):
    """The same query with another program."""
    other = Operated(query.cluster, query.folder, query.checkpoint)
    other.columns = ("value", *columns)
    other.target_options = {**ADD, **options}
    other.fed, other._numbers = query.fed, query._numbers
    return other


def column(query, name):
    """Return what the rows of the target have there, by their value."""
    found = query.client.select_rows(f"value, {name} from [{query.target}]")
    return {row["value"]: row[name] for row in found}


def test_rows_have_the_column_from_the_first_batch_of_the_new_program(old):
    before = set(old.written())
    new = program(old, "n")
    new.run(rows=2)
    new.assert_exact()
    assert column(new, "n") == {v: None if v in before else v for v in new.fed}
    three = program(new, "n", "m")
    three.feed(3)
    seen = []
    three.options = {"listener": lambda event, fields: seen.append((event, fields))}
    three.run(rows=2)
    assert [f["columns"] for e, f in seen if e == Event.COLUMNS_ADDED] == [["m"]]
    assert {v for v, m in column(three, "m").items() if m is not None} == set(three.fed[-6:])


def test_columns_are_refused_or_ignored_where_nobody_wants_them(old):
    """The refusal has the command that adds them; after it the query continues."""
    refusing = program(old, "n", "m", on_new_columns="refuse")
    with pytest.raises(SchemaMismatchError, match=f"add-column {old.target} n int64 m int64"):
        refusing.run()
    (repair,) = refusing.repairs("--schema 'value bigint, n bigint'")
    assert repair.startswith(f"yt-exactly-once add-column {old.target} n int64. Or let the sink")
    seen = []
    ignoring = program(old, "n", on_new_columns="ignore")
    ignoring.options = {"listener": lambda event, fields: seen.append((event, fields))}
    ignoring.run(rows=2)
    assert [f["columns"] for e, f in seen if e == Event.COLUMNS_IGNORED] == [("n",)]
    ignoring.assert_exact()
    refusing.feed(3)
    assert len(refusing.restart_with_advice()) == 1
    refusing.assert_exact()
    assert {v for v, n in column(refusing, "n").items() if n is not None} == set(refusing.fed[-6:])


def test_query_continues_without_the_columns_that_its_queue_gets(old):
    """While it runs, and with them after the next start; the rows that have values there too."""

    def add():
        code, said = old.command(f"yt-exactly-once add-column {old.queue} n bigint")
        assert code == 0, said
        values = [100, 101, 102]
        old.fed.extend(values)
        old.client.insert_rows(
            old.queue, [{"$tablet_index": 0, "value": v, "n": v} for v in values]
        )

    old.meanwhile = add
    old.run(rows=2)
    old.run(rows=2)
    old.assert_exact()


class DeadError(Exception):
    """Raised instead of every request of a driver that is dead."""


def kill_after(monkeypatch, requests):
    """Let so many requests of light commands through, from the first one that is sent to alter a table."""
    real, real_send = http_driver.make_request, sender.Sender.send
    left = [requests, False]

    def make(command, *arguments, **options):
        left[1] |= command == "start_transaction"
        if left[1]:
            if not left[0]:
                raise DeadError
            left[0] -= 1
        return real(command, *arguments, **options)

    def send(self, *arguments, **options):
        if left[1] and not left[0]:
            raise DeadError
        return real_send(self, *arguments, **options)

    monkeypatch.setattr(http_driver, "make_request", make)
    monkeypatch.setattr(sender.Sender, "send", send)


@pytest.mark.parametrize("step", first_of([5, 1]))
@pytest.mark.further
def test_driver_that_is_killed_while_it_alters_leaves_what_the_next_start_finishes(
    old, step, monkeypatch
):
    """At each request of the alteration, and of the batch after it."""
    monkeypatch.setattr(alteration, "LEASE", timedelta(seconds=0.5))
    monkeypatch.setattr(alteration, "_LOOK_EVERY", timedelta(seconds=0.01))
    before, states = set(old.written()), set()
    new = program(old, "n")
    for requests in range(0, 60, step):
        with monkeypatch.context() as patch:
            kill_after(patch, requests)
            with suppress(DeadError, RetriesExhaustedError):
                new.run(rows=2)
                break
        states.add(old.client.get(f"{old.target}/@tablet_state"))
    monkeypatch.undo()
    new.run(rows=2)
    assert "unmounted" in states
    new.assert_exact()
    assert column(new, "n") == {v: None if v in before else v for v in new.fed}
    assert not old.client.exists(f"{old.target}/@{ALTERING}")


MOMENTS = [
    Event.BATCH_COMPUTED,
    Event.LEDGER_READ,
    Event.TRANSACTION_STARTED,
    Event.ROWS_WRITTEN,
    Event.LEDGER_RECORDED,
]
"""Until the old driver has committed: later on it finds Spark's log of the new one first."""


def run_on(query):
    """Run a query again and again, with rows to read each time."""
    for _ in range(3):
        query.run(rows=2)
        query.feed(2)


@pytest.mark.parametrize("moment", first_of(MOMENTS, count=2))
@pytest.mark.parametrize("batches", first_of([1, 2]))
def test_old_driver_is_refused_once_the_new_one_has_written(old, moment, batches):
    """Every batch is wholly of one of them; after the first one with the column none is without it."""
    new, came = program(old, "n"), 0

    def act(event, _fields):
        nonlocal came
        came += event == moment
        if event == moment and came == batches:
            new.run(rows=2)

    old.options = {"listener": act}
    with pytest.raises((FencedError, SchemaMismatchError)):
        run_on(old)
    assert came >= batches
    new.fed = old.fed
    new.run(rows=2)
    new.assert_exact()
    found = column(new, "n")
    for partition in range(2):
        rows = new.client.pull_queue(new.queue, 0, partition)
        values = [(row["value"], found[row["value"]]) for row in rows]
        first = next(number for number, (_, n) in enumerate(values) if n is not None)
        assert all(n is None for _, n in values[:first])
        assert all(n == value for value, n in values[first:])
    entry = next(iter(new.client.select_rows(f"* from [{new.ledger}]")))
    assert all(source["columns"] == ["n", "value"] for source in entry["offsets"])
    old.feed(1)
    old.options = {}
    with pytest.raises(SchemaMismatchError, match="lacks columns that this query has written: n"):
        old.run()
    given_up = program(new, "n?")
    given_up.run()
    given_up.assert_exact()
    # Once the ledger entry does not name the column any more, nobody needs it.
    for last in (program(new, "n?", on_new_columns="refuse"), old):
        last.feed(1)
        last.run()
