"""Tables and checkpoints of a query are put back from copies, emptied or removed, and a person repairs it.

The person knows only what is printed, and the page that it names. Each case ends with every row exactly
once, or with what is lost, and who could have known.
"""

import re
import shutil
from collections import Counter
from dataclasses import dataclass
from unittest import mock

import pytest

from tests.breaks_page import HOWS, KINDS, WHATS, require_restored, restored
from tests.local import operated
from tests.local.operated import PARTITIONS, TARGET_SCHEMA, Killed, Operated, UndecidedError
from tests.tiers import first_of
from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.spark.doors import frame_rows
from yt_exactly_once.ytsaurus import queues

_BATCHES = re.compile(r"rows of batch(?:es)? (\d+)(?: to (\d+))?")
_ACCEPTED = re.compile(r"accept_incomplete=\(?(\d+)(?:, (\d+))?")


@dataclass
class Copies:
    """Copies of everything that the query has, from the end of its batch 0."""

    query: Operated

    def take(self, *names):
        self.rows, self.names = {}, names
        for name in names:
            path = getattr(self.query, name)
            self.rows[name] = list(self.query.client.select_rows(f"* from [{path}]"))
            self.query.client.freeze_table(path, sync=True)
            self.query.client.copy(path, f"{path}_copy")
            self.query.client.unfreeze_table(path, sync=True)
        shutil.copytree(self.query.checkpoint, f"{self.query.checkpoint}_copy")

    def put_back(self, name, how):
        """Do to a table, or to the checkpoint, what the name of a case says."""
        getattr(self, f"{'log' if name == 'checkpoint' else 'table'}_{how.replace(' ', '_')}")(name)

    def log_removed(self, _name):
        shutil.rmtree(self.query.checkpoint)

    def log_emptied(self, name):
        self.log_removed(name)
        self.query.checkpoint.mkdir()

    def log_old_copy(self, name):
        self.log_removed(name)
        shutil.copytree(f"{self.query.checkpoint}_copy", self.query.checkpoint)

    def log_in_place(self, _name):
        """Put Spark's part back, and leave the notes."""
        for folder in ("offsets", "commits"):
            shutil.rmtree(self.query.checkpoint / folder)
            shutil.copytree(
                f"{self.query.checkpoint}_copy/{folder}", self.query.checkpoint / folder
            )

    def table_old_copy(self, name):
        path = getattr(self.query, name)
        self.query.client.remove(path)
        self.query.client.move(f"{path}_copy", path)
        self.query.client.mount_table(path, sync=True)

    def table_emptied(self, name, rows=()):
        """Remove all rows, and leave the table."""
        client, path = self.query.client, getattr(self.query, name)
        if client.get(f"{path}/@sorted"):
            keys = client.get(f"{path}/@key_columns")
            there = client.select_rows(f"{', '.join(keys)} from [{path}]")
            client.delete_rows(path, list(there))
        else:
            for tablet in range(client.get(f"{path}/@tablet_count")):
                (found,) = client.get_tablet_infos(path, [tablet])["tablets"]
                client.trim_rows(path, tablet, found["total_row_count"])
        values = [{k: v for k, v in row.items() if not k.startswith("$")} for row in rows]
        client.insert_rows(path, values)

    def table_in_place(self, name):
        self.table_emptied(name, self.rows[name])

    def table_removed(self, name):
        self.query.client.remove(getattr(self.query, name))


class Person:
    """Looks into target, queue and checkpoint, and does what the page says."""

    def __init__(self, query):
        self.query = query

    def rows_of(self, number):
        """Return the rows of a batch, as the page says how to find them."""
        offset, client = self.query._offset(number), self.query.client
        return [
            row["value"]
            for partition in range(PARTITIONS)
            for row in client.select_rows(
                f"value from [{self.query.queue}] where [$tablet_index] = {partition} and [$row_index] "
                f"between {offset['start'][str(partition)]} and {offset['partitions'][str(partition)] - 1}"
            )
        ]

    def lacks(self, number):
        return not set(self.rows_of(number)) <= set(self.query.written())

    def prepare(self):
        """Be there for what the texts ask of a person."""
        self.query.people = {
            "section 'An older copy was put back'": self.look,
            "section 'A ledger is missing'": self.accept_ledger,
            "section 'A producer is missing'": self.look_for_pushed,
            "mode='at-least-once'": self.repeat,
        }

    def look_for_pushed(self):
        """Section 'A producer is missing'."""
        number, _ = _range(_BATCHES, self.query.followed[-1])
        lacking = set(self.rows_of(number)) - set(self.query.written())
        if len(lacking) < len(self.rows_of(number)):
            rows = [{"value": value} for value in sorted(lacking)]
            self.query.client.insert_rows(self.query.target, rows)
            self.tell_spark(number)
        self.query.options["new_ledger"] = True

    def accept_ledger(self):
        """Section 'A ledger is missing', for a target that lacks nothing but this batch."""
        number = self.query._newest("offsets")
        assert self.lacks(number)
        if any(self.lacks(earlier) for earlier in range(number)):
            raise UndecidedError
        self.query.options["new_ledger"] = True
        if "ledger_path" in self.query.followed[-1]:
            self.query.ledger = self.query.options["ledger_path"] = (
                f"{self.query.target}_new_ledger"
            )

    def begin_again(self):
        """Section 'Throw the result away and begin again', with a new consumer."""
        query = self.query
        if query.client.exists(query.target):
            Copies(query).table_emptied("target")
        else:
            query.create_table(query.target, TARGET_SCHEMA)
        query.checkpoint, query.consumer = (
            query.checkpoint.with_name("again"),
            f"{query.consumer}_again",
        )
        query.options.clear()
        code, said = query.command(
            f"yt-exactly-once create-consumer {query.consumer} {query.queue}"
        )
        assert code == 0, said
        query.run()

    def repeat(self):
        self.query.mode = "at-least-once"

    def look(self):
        """Section 'An older copy was put back'; a later start may ask again."""
        self.prepare()
        advice = self.query.followed[-1]
        first, last = _range(_BATCHES, advice)
        lacking = next((one for one in range(first, last + 1) if self.lacks(one)), None)
        if lacking is None and (accepted := _ACCEPTED.search(advice)):
            self.query.options["accept_incomplete"] = _range(_ACCEPTED, accepted[0])
        elif lacking is None:
            self.tell_spark(first)
        else:
            self.repeat_from(lacking)
            self.query.options["new_ledger"] = True
            if lacking > first:
                self.query.options["accept_incomplete"] = first, lacking - 1

    def repeat_from(self, number):
        """Section 'Let Spark repeat the batches'."""
        for folder, kept in (("commits", number), ("offsets", number + 1)):
            for file in (self.query.checkpoint / folder).iterdir():
                if int(file.name) >= kept:
                    file.unlink()
        (row,) = self.query.client.select_rows(f"query_id from [{self.query.ledger}]")
        code, said = self.query.command(
            f"yt-exactly-once repair {self.query.ledger} --query {row['query_id']} --checkpoint "
            f"{self.query.checkpoint} --apply"
        )
        assert code == 0, said

    def tell_spark(self, number):
        """Section 'A ledger is missing', the steps for a batch that is there."""
        commits = self.query.checkpoint / "commits"
        shutil.copy(commits / str(number - 1), commits / str(number))
        self.query.options["accept_incomplete"] = number


def _range(pattern, text):
    first, last = pattern.search(text).groups()
    return int(first), int(last or first)


@pytest.fixture
def begun(cluster, tmp, tmp_path, monkeypatch):
    """A query of a kind that has written batch 0, of which there are copies, and then batches 1 and 2."""
    monkeypatch.setattr(frame_rows, "require_straight", lambda *_: None)
    # No line here has times: commands need no process of their own.
    monkeypatch.setattr(operated, "WRITES", False)
    monkeypatch.setattr(queues, "_PAUSE_SECONDS", 0.05)

    def begin(kind, *, die_after=""):
        mode, keeps_state = KINDS[kind]
        query = Operated(cluster, tmp, tmp_path / "checkpoint", mode=mode).create()
        if keeps_state:
            (query.checkpoint / "state").mkdir(parents=True)
        query.feed(5)
        query.run()
        copies = Copies(query)
        names = ["target", "ledger", "consumer"]
        if mode == "idempotent":
            query.producer = f"{query.target}_producer"
            names.append("producer")
        copies.take(*names)
        query.feed(5)
        query.run()
        query.feed(5)
        if die_after == "push":
            with mock.patch.object(BatchCommit, "commit", side_effect=Killed):
                query.kill(die_after)
        elif die_after:
            query.kill(die_after)
        else:
            query.run()
        query.feed(5)
        return query, copies

    return begin


LEDGERS = [
    (names, how, kind)
    for kind in KINDS
    for names in ("target ledger", "target ledger consumer", "ledger", "ledger consumer")
    for how in ("in place", "old copy")
]


@pytest.mark.parametrize(("names", "how", "kind"), first_of(LEDGERS, count=2))
def test_older_ledger_is_refused_and_what_is_said_gives_every_row(begun, names, how, kind):
    """Two batches were committed since; with the target, or without it."""
    query, copies = begun(kind)
    for name in names.split():
        copies.put_back(name, how)
    Person(query).prepare()
    assert "ends at batch 0, and the query has committed batch 2" in query.restart_with_advice()[0]
    query.assert_exact()
    # As the page says, for one start.
    query.options.clear()
    query.mode = KINDS[kind][0]
    query.feed(5)
    query.run()
    query.assert_exact()


@pytest.mark.parametrize("names", ["target ledger", "ledger"])
@pytest.mark.parametrize("how", first_of(["in place", "old copy"], count=1))
def test_no_tool_moves_the_consumer_back_to_an_older_ledger(begun, names, how):
    """Nor has a command for it. The error says what has happened, and what it says gives every row."""
    query, copies = begun("transactional")
    for name in names.split():
        copies.put_back(name, how)

    offsets = f"* from [{query.consumer}]"
    before, given = list(query.client.select_rows(offsets)), f"--checkpoint {query.checkpoint}"
    asked = ["status", "repair", "repair --apply", f"repair --apply {given}"]
    said = [query.command(f"yt-exactly-once {ask} {query.ledger}")[1] for ask in asked]
    said += [query.doctor()[1], query.doctor(given)[1]]
    assert not [one for one in said if "yt-exactly-once repair" in one]
    assert list(query.client.select_rows(offsets)) == before
    Person(query).prepare()
    query.restart_with_advice()
    query.assert_exact()


@pytest.mark.parametrize("names", ["target ledger", "ledger"])
def test_replay_of_a_batch_that_the_older_ledger_lacks_is_refused(begun, names):
    """The driver died after its commit. Whether the target has it, only a look into the target says."""
    query, copies = begun("transactional", die_after="sink")
    for name in names.split():
        copies.put_back(name, "in place")
    Person(query).prepare()
    query.restart_with_advice()
    assert set(query.said) == {"LedgerMissingError"}
    query.assert_exact()


RESTORES = [
    (what, how, kind)
    for what in WHATS
    for how in HOWS
    for kind in KINDS
    if what != "producer" or kind == "idempotent"
]
_MAY_REPEAT = "the mode may repeat rows"
REASONS = {
    "target": "others may write there",
    "at-least-once": _MAY_REPEAT,
    "at-least-once with state": _MAY_REPEAT,
}
"""Why the sink does not know of a loss, by what is put back, or of a repetition, by the kind of the query."""


@pytest.mark.parametrize(("what", "how", "kind"), first_of(RESTORES, count=1))
def test_whatever_is_put_back_has_its_line(begun, what, how, kind):
    """All rows, a refusal, or a loss that only the tools name; a new beginning gives every row then."""
    query, copies = begun(kind)
    person = Person(query)
    for name in what.split(" and "):
        copies.put_back(name, how)
    query.look()
    person.prepare()
    try:
        query.restart_with_advice()
    except UndecidedError:
        outcome = "refused"
    else:
        found, wanted = query.written(), Counter(query.fed)
        lost, repeated = (wanted - found).total(), (found - wanted).total()
        parts = [f"{n} {name}" for n, name in ((lost, "lost"), (repeated, "repeated")) if n]
        reason = REASONS[kind if repeated else what] if parts else ""
        outcome = f"{', '.join(parts)}: {reason}" if parts else "exact"
    if outcome != "exact":
        query.mode = KINDS[kind][0]
        person.begin_again()
        query.assert_exact()
    require_restored((what, how, kind), query, outcome)


def test_page_has_every_case():
    """And no other."""
    assert set(restored()) == set(RESTORES)


@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.parametrize("how", first_of(HOWS, count=1))
def test_lost_producer_is_refused_and_what_is_said_gives_every_row(begun, how, is_changed):
    """The driver died between push and commit; also if the next run has another mode."""
    query, copies = begun("idempotent", die_after="push")
    copies.put_back("producer", how)
    if is_changed:
        query.mode = "transactional"
    Person(query).prepare()
    assert "this batch may have been pushed before" in query.restart_with_advice()[0]
    query.assert_exact()
    query.options.clear()
    query.feed(5)
    query.run()
    query.assert_exact()
