"""Rows that their target could not take are repaired and written: each one once, and none is lost."""

import itertools
import json
from collections import Counter
from datetime import date
from unittest import mock

import pyarrow as pa
import pytest

from tests.contract.tables import columns, create, key_columns
from tests.fan_out import Given, deliver
from tests.local.operated import Operated
from tests.local.pipelines import Pipeline
from tests.remedies import COMMAND
from yt_exactly_once import Target
from yt_exactly_once.codec.rejects import EARLIER_SCHEMA, REJECT_SCHEMA
from yt_exactly_once.commit.ledger import LEDGER_MARK, LEDGER_SCHEMA
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.errors import ConfigError, ConflictError, EncodingError
from yt_exactly_once.operations import dead_letters
from yt_exactly_once.spark.schema import spark_schema_of
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tables import LETTERS, ensure_table
from yt_exactly_once.ytsaurus.transaction import TabletTransaction

SHOWN = {"": 0, "--all": 152, "--all --limit 3": 3}
"""Letters that `show` has once all of them were replayed, by its options."""

NATURAL = {"name": "value", "type": "uint64", "required": True}
SORTED = [
    *key_columns(part="int64", row="int64"),
    *columns(value="int64", data="string", day="date", price="double"),
]


class Natural(Operated):
    """A query whose target takes numbers from 0 on."""

    def create_table(self, path, schema, **attributes):
        """Create the target with its own columns."""
        super().create_table(path, [NATURAL] if path == self.target else schema, **attributes)


@pytest.fixture
def query(cluster, tmp, tmp_path):
    made = Natural(cluster, tmp, tmp_path / "checkpoint")
    made._numbers = itertools.count(-152)
    made.letters = f"{tmp}/letters"
    made.options = {"dead_letter_path": made.letters}
    made.target_options = {"digest": True}
    made.create()
    made.feed(140)
    made.run(rows=100)
    return made


def told(query, command, **options):
    code, said = query.command(f"yt-exactly-once dead-letters {command} --json")
    assert code == options.get("code", 0), said
    return json.loads(said)


def corrected(query, tmp_path, change, *, count=None):
    """Save the waiting letters, with other values; return the file."""
    found = told(query, f"show {query.letters}")[:count]
    for one in found:
        one["row"]["value"] = change(one["row"]["value"])
    file = tmp_path / f"letters-{count}.json"
    file.write_text(json.dumps(found))
    return file


def wanted(query, change):
    return Counter(value if value >= 0 else change(value) for value in query.fed)


def more(value):
    return value + 1000


def test_error_of_a_bad_row_leads_to_its_letter(query, tmp_path):
    """Without the option the query stops; what the error says leads to every row, in its place."""
    letters = query.options.pop("dead_letter_path")
    query.feed(2)
    query._numbers = itertools.count(-2)
    query.feed(1)
    with pytest.raises(EncodingError, match="give the sink a dead_letter_path"):
        query.run()
    query.options["dead_letter_path"] = letters
    query.run()
    told(query, f"replay {letters} --letters {corrected(query, tmp_path, more)} --apply")
    assert query.written() == wanted(query, more)


def test_letters_are_counted_by_what_is_wrong_with_them(query):
    (group,) = told(query, f"list {query.letters}")
    assert (group["target"], group["column"], group["letters"], group["waiting"]) == (
        query.target, "value", 152, 152,
    )  # fmt: skip
    assert "outside the range of uint64" in group["reason"]
    (plan,) = told(query, f"replay {query.letters} --apply", code=1)
    assert (plan["written"], len(plan["unfit"])) == (0, 152)


def test_repaired_letters_are_written_once_however_often_they_are_replayed(query, tmp_path):
    """A part of them first, then all, then all again; counts and digests of the ledger cover them."""
    first = corrected(query, tmp_path, more, count=50)
    (plan,) = told(query, f"replay {query.letters} --letters {first}", code=1)
    assert (plan["fitting"], plan["written"]) == (50, 0)
    for _ in range(2):
        told(query, f"replay {query.letters} --letters {first} --apply")
    rest = corrected(query, tmp_path, more)
    (plan,) = told(query, f"replay {query.letters} --letters {rest} --apply")
    assert plan["written"] == 102
    (plan,) = told(query, f"replay {query.letters} --letters {first} --apply")
    assert (plan["written"], plan["replayed_before"]) == (0, 50)
    assert query.written() == wanted(query, more)
    assert told(query, f"list {query.letters}")[0]["waiting"] == 0
    shown = {flags: len(told(query, f"show {query.letters} {flags}")) for flags in SHOWN}
    assert shown == SHOWN
    for by in ("digest", "count"):
        _, said = query.command(f"yt-exactly-once audit {query.target} --by {by} --json")
        (found,) = json.loads(said)["targets"]
        assert found["verdict"] == {"digest": "exact", "count": "NOT proven"}[by], said


def moved(client, path, place, copy=False):
    """Move or copy a dynamic table, which is mounted at its new place."""
    client.unmount_table(path, sync=True)
    (client.copy if copy else client.move)(path, place)
    for each in {place, *([path] if copy else ())}:
        client.mount_table(each, sync=True)


def entry(query, ledger, query_id, **changed):
    """Give a ledger an entry of the target, as the one that its query has."""
    (known,) = query.client.select_rows(f"* from [{ledger}] where query_id = '{query.query_id}'")
    return {**known, "query_id": query_id, **changed}


def with_another_ledger(query):
    """Another query has one nearer to the target; return the path of the first one."""
    other, path = entry(query, query.ledger, "another"), f"{query.folder}/z_ledger"
    moved(query.client, query.ledger, path)
    ensure_table(
        Connection(ClusterConfig(proxy=query.proxy)), query.ledger, LEDGER_SCHEMA, {LEDGER_MARK: 1}
    )
    query.client.insert_rows(query.ledger, [other])
    return path


def test_letters_are_counted_in_one_ledger(query, tmp_path):
    """Of two entries the newest counts: the other letters would look like rows of nobody."""
    told(
        query,
        f"replay {query.letters} --letters {corrected(query, tmp_path, more, count=50)} --apply",
    )
    ledger = with_another_ledger(query)
    told(query, f"replay {query.letters} --letters {corrected(query, tmp_path, more)} --apply")
    of_letters = "where is_prefix('dead-letters:', query_id)"
    (row,) = query.client.select_rows(f"total_rows from [{ledger}] {of_letters}")
    assert row["total_rows"] == 152


def test_letters_are_written_once_whatever_ledgers_there_are(query, tmp_path):
    """Another query writes the target, with a ledger of its own; and both tables of letters are renamed."""
    command = f"--letters {corrected(query, tmp_path, more)} --apply"
    told(query, f"replay {query.letters} {command}")
    with_another_ledger(query)
    moved(query.client, query.letters, f"{query.folder}/renamed")
    moved(query.client, f"{query.letters}_replayed", f"{query.folder}/notes")
    (plan,) = told(query, f"replay {query.folder}/renamed {command}")
    assert (plan["written"], plan["replayed_before"]) == (0, 152)
    assert query.written() == wanted(query, more)


@pytest.mark.parametrize("harm", ["is a copy", "is gone"])
def test_letters_without_their_notes_are_refused(query, tmp_path, harm):
    """Nobody knows which of them were replayed, until a person says that none was."""
    command = f"--letters {corrected(query, tmp_path, more, count=1)} --apply"
    told(query, f"replay {query.letters} {command}")
    path = query.letters
    if harm == "is a copy":
        path = f"{path}_copy"
        moved(query.client, query.letters, path, copy=True)
    else:
        query.client.remove(f"{path}_replayed")
    for what in ("list", "show", "replay"):
        code, said = query.command(f"yt-exactly-once dead-letters {what} {path}")
        assert (code, harm in said) == (2, True), said
    remedies = COMMAND.findall(said)
    assert [query.command(remedy)[0] for remedy in remedies] == [0] * len(remedies) != []
    assert told(query, f"list {path}")[0]["waiting"] == 152


def test_copy_from_before_the_first_replay_is_refused(query, tmp_path):
    """Its letters have other names. Those of an earlier version have no mark: `audit` counts them."""
    copy = f"{query.letters}_copy"
    moved(query.client, query.letters, copy, copy=True)
    file = corrected(query, tmp_path, more)
    told(query, f"replay {query.letters} --letters {file} --apply")
    code, said = query.command(f"yt-exactly-once dead-letters list {copy}")
    assert (code, "is a copy" in said) == (2, True), said
    audit = f"yt-exactly-once audit {query.target}"
    query.feed(10)
    query.run()
    assert query.command(audit)[0] == 0
    query.client.remove(f"{copy}/@{LETTERS}")
    letters = json.loads(file.read_text())
    for one in letters:
        one["table"] = query.client.get(f"{copy}/@id")
    file.write_text(json.dumps(letters))
    told(query, f"replay {copy} --letters {file} --apply")
    code, said = query.command(audit)
    assert (code, "152 dead letters were not replayed twice" in said) == (1, True), said


def test_letters_and_notes_of_an_earlier_version_are_read(query):
    """Their table has no types, and notes of replays were in a ledger; the sink asks for another table."""
    path = query.options["dead_letter_path"] = f"{query.folder}/earlier"
    ensure_table(Connection(ClusterConfig(proxy=query.proxy)), path, EARLIER_SCHEMA, {})
    about = {"query_id": "q", "batch_id": 0, "target": query.target, "column": "x", "reason": "y"}
    rows = [about | {"row": json.dumps({"value": number})} for number in (1001, 1002)]
    query.client.insert_rows(path, rows)
    table = query.client.get(f"{path}/@id")
    done = entry(query, query.ledger, f"dead-letters:{table}", other_sources='{"0":[[0,1]]}')
    query.client.insert_rows(query.ledger, [done])
    assert [one["row"] for one in told(query, f"show {path}")] == [{"value": 1002}]
    for written in (1, 0):
        (plan,) = told(query, f"replay {path} --apply")
        assert (plan["written"], plan["replayed_before"]) == (written, 2 - written)
    query.fed.append(1002)
    query.feed(1)
    with pytest.raises(ConfigError, match="lacks or misplaces row_arrow") as caught:
        query.run()
    assert "Name another path in dead_letter_path" in caught.value.remedy
    query.options["dead_letter_path"] = query.letters
    query.run()


def test_of_two_replays_at_once_one_writes(query, tmp_path, monkeypatch):
    """Whether the other one had planned before, or was in the middle of its transaction."""
    monkeypatch.setattr(dead_letters, "ROWS_PER_COMMIT", 60)
    file = corrected(query, tmp_path, more)
    connection = Connection(ClusterConfig(proxy=query.cluster.proxy_urls[0]))
    letters = dead_letters.repaired(
        dead_letters.read_letters(connection, query.letters), json.loads(file.read_text())
    )
    (plan,) = dead_letters.plan_replays(connection, query.letters, letters)
    write = TabletTransaction.write

    def overtaken(transaction, *given, **options):
        with mock.patch.object(TabletTransaction, "write", write):
            told(query, f"replay {query.letters} --letters {file} --apply")
        write(transaction, *given, **options)

    with mock.patch.object(TabletTransaction, "write", overtaken), pytest.raises(ConflictError):
        dead_letters.replay(connection, plan)
    assert dead_letters.replay(connection, plan) == 0
    assert query.written() == wanted(query, more)


def test_letter_replaces_no_row_of_a_sorted_target_unasked(cluster, tmp, tmp_path):
    """A key that the target has now may have a newer value; values are read back as they were."""
    made = Pipeline(cluster, tmp, target_schema=SORTED)
    made.create()
    made.feed(3)
    made.run(3)
    letters = f"{tmp}/letters"
    ensure_table(made.connection, letters, REJECT_SCHEMA, {})
    row = {"part": 1, "row": 2, "value": -1, "data": "/wA=", "day": "2026-01-31", "price": 1.5}
    about = {
        "query_id": "q",
        "batch_id": 0,
        "target": made.target,
        "column": "value",
        "reason": "?",
    }
    new = {**row, "row": 9}
    made.client.insert_rows(letters, [about | {"row": json.dumps(one)} for one in (row, new)])
    query = Operated(cluster, tmp, tmp_path)
    query.letters = letters
    command = f"yt-exactly-once dead-letters replay {letters} --base64 data --apply"
    code, said = query.command(command)
    assert code == 2
    assert "1 letters have keys that the target has now" in said
    told(query, f"replay {letters} --base64 data --apply --overwrite")
    found = {
        one["row"]: one for one in made.client.select_rows(f"* from [{made.target}] where part = 1")
    }
    days = (date(2026, 1, 31) - date(1970, 1, 1)).days
    for one in (2, 9):
        stored = found[one]
        assert (stored["value"], stored["day"]) == (-1, days)
        assert bytes(stored["data"]._bytes) == b"\xff\x00"


def replayed(cluster, tmp, tmp_path, schema, given, values, there, corrected, **options):
    """Write rows of which some do not fit, give the table another row, and replay what was set aside."""
    path, letters, proxy = f"{tmp}/target", f"{tmp}/letters", cluster.proxy_urls[0]
    client = cluster.client()
    create(client, path, schema)
    rows = pa.RecordBatch.from_pylist(values, pa.schema(given))
    batch = Given(rows)
    batch.schema = spark_schema_of(rows.schema)
    deliver(Target(path, **options), batch, 0, proxy=proxy, dead_letter_path=letters)
    client.insert_rows(path, there, update=True)
    query = Operated(cluster, tmp, tmp_path)
    query.letters = letters
    found = told(query, f"show {letters}")
    for one, new in zip(found, corrected, strict=True):
        one["row"] |= new
    file = tmp_path / "corrected.json"
    file.write_text(json.dumps(found))

    def again(flags="", code=0):
        command = f"yt-exactly-once dead-letters replay {letters} --letters {file} --apply {flags}"
        found, said = query.command(command)
        assert found == code, said
        return said, sorted(
            client.select_rows(f"* from [{path}]"), key=lambda row: str([*row.values()])
        )

    return again


def test_letters_of_a_target_that_adds_up_are_added(cluster, tmp, tmp_path):
    """To what was added since, each once; also two of one key."""
    total = {**columns(n="uint64")[0], "aggregate": "sum"}
    again = replayed(
        cluster, tmp, tmp_path, [*key_columns(k="int64"), total],
        [("k", pa.int64()), ("n", pa.int64())],
        [{"k": 1, "n": 5}, {"k": 1, "n": -2}, {"k": 1, "n": -3}, {"k": 2, "n": -4}], [],
        [{"n": 2}, {"n": 3}, {"n": 4}], aggregate=True,
    )  # fmt: skip
    for _ in range(2):
        assert again()[1] == [{"k": 1, "n": 10}, {"k": 2, "n": 4}]


def test_letter_of_some_columns_leaves_the_others(cluster, tmp, tmp_path):
    """As the sink does with `update_columns`, whose row replaces no other one."""
    again = replayed(
        cluster, tmp, tmp_path, [*key_columns(k="int64"), *columns(n="uint64", other="int64")],
        [("k", pa.int64()), ("n", pa.int64())], [{"k": 1, "n": -2}], [{"k": 1, "other": 7}],
        [{"n": 2}], update_columns=True,
    )  # fmt: skip
    assert "1 letters have keys that the target has now" in again(code=2)[0]
    assert again("--overwrite")[1] == [{"k": 1, "n": 2, "other": 7}]


def test_key_that_the_cluster_completes_is_found(cluster, tmp, tmp_path):
    """A letter is as old in a table whose first key column is computed."""
    hashed = {
        "name": "h",
        "type": "uint64",
        "sort_order": "ascending",
        "expression": "farm_hash(k)",
    }
    again = replayed(
        cluster, tmp, tmp_path, [hashed, *key_columns(k="int64"), *columns(n="uint64")],
        [("k", pa.int64()), ("n", pa.int64())], [{"k": 1, "n": -2}], [{"k": 1, "n": 7}], [{"n": 2}],
    )  # fmt: skip
    assert "1 letters have keys that the target has now" in again(code=2)[0]
    ((row,),) = (again("--overwrite")[1],)
    assert row["n"] == 2
