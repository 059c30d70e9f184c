"""`status` and `ledger`: what they find, show and remove, on queries that ran without Spark."""

import itertools
import json
import re
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.local.operated import Operated
from tests.local.pipelines import Pipeline
from yt_exactly_once import cli, history, ledger
from yt_exactly_once.commit.entry import LedgerEntry, PartitionOffset
from yt_exactly_once.commit.ledger import LEDGER_MARK
from yt_exactly_once.commit.other_sources import OtherSources
from yt_exactly_once.errors import (
    ConflictError,
    LedgerError,
    TableNotDynamicError,
    TableNotFoundError,
)
from yt_exactly_once.operations import ledgers
from yt_exactly_once.operations.ledgers import LedgerRow, find_ledgers, read_ledger
from yt_exactly_once.operations.pruning import Use, judge_entries, remove_entry
from yt_exactly_once.operations.query_status import (
    PartitionStatus,
    QueryStatus,
    QueueStatus,
    TargetStatus,
)
from yt_exactly_once.operations.status import status, statuses
from yt_exactly_once.operations.view import console, rendered, shown
from yt_exactly_once.spark.engine import past_batches
from yt_exactly_once.ytsaurus.browsing import escaped


@pytest.fixture
def pipeline(cluster, tmp):
    made = Pipeline(cluster, tmp).create()
    made.feed(10)
    return made


def test_status_shows_batch_totals_and_lag(pipeline, told, tmp):
    """Numbers of the last batch and of all batches, as in the ledger, and the place in every partition."""
    pipeline.digest = True
    pipeline.run(3)
    pipeline.run(4)
    code, (found,) = told("status", tmp, "--json")
    assert code == 0
    assert (found["batch"], found["mode"], found["attempts"]) == (1, "transactional", 1)
    (target,) = found["targets"]
    (entry,) = pipeline.client.select_rows(f"* from [{pipeline.ledger}]")
    same = ("bytes", "total_bytes", "batch_digest", "total_digest", "digest_version")
    assert target == {name: entry[name] for name in same} | {
        "path": pipeline.target,
        "rows": 8,
        "total_rows": 14,
        "total_batches": 2,
        "rejected_rows": 0,
        "total_rejected_rows": 0,
        "sent_by": "driver",
        "digest_from_start": True,
        "digest_replaces": False,
        "missing": 0,
        "state": "mounted",
        "problem": "",
    }
    assert 0 < target["bytes"] < target["total_bytes"]
    (queue,) = found["queues"]
    assert (queue["registered"], queue["vital"], queue["auto_trim"]) == (True, True, False)
    assert queue["lag_rows"] == 6
    assert 0 <= queue["lag_seconds"] < 600
    for part in queue["partitions"]:
        assert (part["delivered"], part["consumer"], part["end"]) == (7, 7, 10)
    assert found["problems"] == []
    code, text = told("status", tmp, "--partitions")
    assert code == 0
    assert "transactional" in text
    assert pipeline.queue in text


def test_status_shows_the_offsets_of_topics_and_what_was_known_of_their_ends(pipeline, told, tmp):
    """Of a source that counts in another way its offset, as Spark has it."""
    ends = {"orders": {"0": 7, "1": 9}}, {"orders": {"0": 10, "1": 9}}
    pipeline.others = OtherSources(({"orders": {"0": 4}},), ends[:1], ends[1:]).to_text()
    pipeline.run(3)
    _, (found,) = told("status", tmp, "--json")
    assert found["topics"] == [
        {"topic": "orders", "partition": 0, "start": 4, "end": 7, "latest": 10, "lag_rows": 3},
        {"topic": "orders", "partition": 1, "start": None, "end": 9, "latest": 9, "lag_rows": 0},
    ]
    assert found["topic_lag"] == 3
    _, text = told("status", tmp)
    assert re.search(r"orders +all 2 +16 +19 +3\b", text)
    _, text = told("status", tmp, "--partitions")
    assert re.search(r"orders +0 +7 +10 +3\b", text)
    pipeline.others = OtherSources((), ({"logOffset": 3},)).to_text()
    pipeline.run(3)
    _, text = told("status", tmp)
    assert re.search(r'other +- +{"logOffset": 3} +\? +\?', text)
    _, (found,) = told("status", tmp, "--json")
    assert (found["topics"], found["topic_lag"]) == ([], None)
    assert found["other_sources"]["end"] == [{"logOffset": 3}]


def test_program_gets_values_and_a_notebook_tables(pipeline, client, tmp):
    """Also of a ledger that cannot be read; if that is all there is, it is raised."""
    pipeline.run(3)
    found = status(tmp, connection=pipeline.connection)
    assert [(one.name, one.lag_rows, one.problems) for one in found] == [("query-1", 14, [])]
    assert 0 <= found[0].lag_seconds < 600
    assert status(tmp, query="another", connection=pipeline.connection) == []
    (row,) = ledger(pipeline.target, query="query", connection=pipeline.connection)
    assert row.entry.tally.total_rows == 6
    assert "<table>" in found._repr_html_()
    client.create("table", f"{tmp}/broken", attributes={LEDGER_MARK: 1})
    found = status(tmp, connection=pipeline.connection)
    assert found.unread.keys() == {f"{tmp}/broken"}
    assert f"{tmp}/broken: " in found._repr_html_()
    with pytest.raises(TableNotDynamicError):
        ledger(tmp, connection=pipeline.connection)
    client.remove(pipeline.ledger)
    with pytest.raises(TableNotDynamicError):
        status(tmp, connection=pipeline.connection)


def test_trouble_of_a_queue_is_said_and_hides_nothing_else(pipeline, told, tmp):
    """Rows that are gone, a registration that is gone, a queue that is another one, or none."""
    pipeline.run(3)
    pipeline.client.unregister_queue_consumer(pipeline.queue, pipeline.consumer)
    (found,) = status(tmp, connection=pipeline.connection)
    assert "is not registered" in found.problems[0]
    pipeline.client.trim_rows(pipeline.queue, 1, 9)
    (found,) = status(tmp, connection=pipeline.connection)
    assert "6 rows were trimmed" in found.problems[0]
    assert found.queues[0].partitions[1].lag_seconds is None
    pipeline.client.unmount_table(pipeline.queue, sync=True)
    (found,) = status(tmp, connection=pipeline.connection)
    assert f"Run: yt mount-table {pipeline.queue} --sync" in found.problems[0]
    pipeline.client.remove(pipeline.queue)
    (found,) = status(tmp, connection=pipeline.connection)
    assert "There is no such table" in found.problems[0]
    pipeline.create()
    (found,) = status(tmp, connection=pipeline.connection)
    assert "recreated" in found.problems[0]
    assert "recreated" in told("status", tmp)[1]


def test_consumer_that_somebody_moved_is_said(pipeline, tmp):
    """Unless the query ran in the meantime, or a later query took the consumer over."""
    pipeline.run(3)
    pipeline.client.advance_queue_consumer(pipeline.consumer, pipeline.queue, 1, 3, 9)
    (found,) = status(tmp, connection=pipeline.connection)
    assert "is at row 9 of partition 1, and this query left it at 3" in found.problems[0]
    pipeline.client.advance_queue_consumer(pipeline.consumer, pipeline.queue, 1, 9, 3)
    read_before = read_ledger(pipeline.connection, pipeline.ledger)
    pipeline.run(2)
    assert [one.problems for one in statuses(pipeline.connection, read_before, read_before)] == [[]]
    Pipeline(pipeline.cluster, tmp, query="query-2", at=list(pipeline.at)).run(1)
    assert [one.problems for one in status(tmp, connection=pipeline.connection)] == [[], []]


def test_ledgers_are_found_by_mark_by_path_and_beside_their_target(cluster, client, tmp):
    """One of an older version has no mark: it is found by its path, not by a search."""
    deep = Pipeline(cluster, f"{tmp}/a/b c").create()
    old = Pipeline(cluster, f"{tmp}/old", marked=False).create()
    connection = deep.connection
    assert find_ledgers(connection, [tmp]) == [deep.ledger]
    assert find_ledgers(connection, [old.target, old.ledger]) == [old.ledger]
    with pytest.raises(LedgerError, match="No ledger"):
        find_ledgers(connection, [old.queue])
    with pytest.raises(TableNotFoundError):
        find_ledgers(connection, [f"{tmp}/nothing"])
    client.create("map_node", f"{tmp}/empty")
    assert find_ledgers(connection, [f"{tmp}/empty"]) == []


def test_search_ends_where_there_are_too_many_folders(client, tmp, told, monkeypatch):
    """It does not list a large cluster by accident."""
    monkeypatch.setattr(ledgers, "MOST_FOLDERS", 2)
    for name in "abc":
        client.create("map_node", f"{tmp}/{name}")
    code, text = told("status", tmp)
    assert code == 2
    assert "more than 2 folders" in text


def test_entries_are_listed_and_shown(pipeline, told, tmp):
    """With offsets; and nothing is no error."""
    pipeline.run(3)
    assert pipeline.query in told("ledger", "list", tmp)[1]
    _, (entry,) = told("ledger", "show", pipeline.target, "--json")
    assert entry["offsets"][0]["partitions"]["1"] == [0, 3, 3, 0]
    assert entry["started_at"] <= entry["committed_at"]
    text = told("ledger", "show", pipeline.ledger, "--query", "query")[1]
    assert "partition 1: rows 0 to 3, read from 0 on, consumer left at 3" in text
    assert "no entry" in told("ledger", "show", pipeline.ledger, "--query", "other")[1]


def test_prune_removes_what_it_is_told_to_and_nothing_else(cluster, pipeline, told, tmp):
    """An entry in use stays; a superseded one goes only on request."""
    pipeline.run(3)
    later = Pipeline(cluster, tmp, query="query-2", at=list(pipeline.at))
    assert [one.use for one in judge_entries(pipeline.connection, pipeline.ledger)] == [Use.IN_USE]
    later.run(2)
    verdicts = {
        one.row.entry.query_id: one.use for one in judge_entries(later.connection, later.ledger)
    }
    assert verdicts == {"query-1": Use.SUPERSEDED, "query-2": Use.IN_USE}
    code, text = told("ledger", "prune", later.ledger)
    assert code == 0
    assert "superseded" in text
    assert len(read_ledger(later.connection, later.ledger)) == 2
    assert told("ledger", "prune", later.ledger, "--target-gone", "--yes")[0] == 0
    assert len(read_ledger(later.connection, later.ledger)) == 2
    assert told("ledger", "prune", later.ledger, "--query", "query-9")[0] == 2
    one = ["ledger", "prune", later.ledger, "--superseded", "--yes"]
    told(*one, "--target", later.queue)
    assert len(read_ledger(later.connection, later.ledger)) == 2
    told(*one, "--target", later.target)
    (left,) = read_ledger(later.connection, later.ledger)
    assert left.entry.query_id == "query-2"
    later.commit([], [])
    assert told("status", later.ledger)[1].endswith("\nno queues\n")
    later.client.remove(later.target)
    _, (gone,) = told("ledger", "prune", later.ledger, "--target-gone", "--yes", "--json")
    assert (gone["verdict"], gone["removed"]) == ("target gone", True)
    assert read_ledger(later.connection, later.ledger) == []
    assert told("ledger", "list", later.ledger) == (0, "no entries\n")


def test_entry_that_its_query_has_written_meanwhile_is_not_removed(pipeline):
    """What was judged is not what is there."""
    pipeline.run(3)
    (row,) = read_ledger(pipeline.connection, pipeline.ledger)
    pipeline.run(1)
    with pytest.raises(ConflictError, match="query is running"):
        remove_entry(pipeline.connection, row)
    assert len(read_ledger(pipeline.connection, pipeline.ledger)) == 1


def test_command_without_a_proxy_says_what_to_do(capsys, monkeypatch):
    """One line, no traceback."""
    monkeypatch.delenv("YT_PROXY", raising=False)
    assert cli.main(["status"]) == 2
    assert capsys.readouterr().err.startswith("error: No YTsaurus proxy is configured")


def test_live_view_ends_in_time_and_leaves_a_page(pipeline, told, tmp, tmp_path, monkeypatch):
    """The page has the batches that were committed while it watched."""
    pipeline.run(3)
    # The command's clock alone: in the whole process, threads of the cluster sleep too.
    clock = SimpleNamespace(
        monotonic=itertools.count(0, 0.3).__next__, time=time.time, sleep=lambda _: pipeline.run(1)
    )
    monkeypatch.setattr("yt_exactly_once.cli.status.time", clock)
    page = tmp_path / "page.html"
    watch = ["status", tmp, "--watch", "--every", "0.2", "--for", "1", "--report", str(page)]
    code, text = told(*watch)
    assert code == 0, text
    assert pipeline.target in text
    assert "committed, batch 1" in page.read_text()
    assert told("status", tmp, "--for", "3")[0] == 2
    assert told("status", tmp, "--watch", "--json")[0] == 2
    assert told("status", tmp, "--report", "/nowhere/x.html")[0] == 2


@pytest.mark.parametrize(
    ("name", "outcome"),
    [(r"a\/b", "There is nothing at the consumer"), ("a\\", "Correct the path")],
)
def test_path_with_a_slash_or_a_backslash_in_a_name_is_one(told, tmp, name, outcome):
    """The folder of such a node is not cut within its name; a path that is none is an error with a remedy."""
    queue = f"{tmp}/queue"
    assert told("create-queue", queue, "--schema", "value bigint")[0] == 0
    paths = [f"--{kind}={tmp}/{name}" for kind in ("consumer", "target", "ledger")]
    assert outcome in told("doctor", "--queue", queue, *paths)[1].replace("\n", " ")


def test_names_are_printed_as_they_are(cluster, told, tmp):
    """Neither markup nor an emoji nor an escape sequence nor another line in a path reaches the terminal."""
    name = "t[/b][red]:warning:\x1b[31m\nRun: yt remove //home\u202e"
    made = Pipeline(cluster, tmp, target_name=escaped(name))
    made.ledger = f"{tmp}/ledger"
    made.create()
    made.feed(1)
    made.run(1)
    for command in (
        ["status"],
        ["status", "--partitions"],
        ["ledger", "list"],
        ["ledger", "show"],
        ["repair"],
    ):
        shown = told(*command, tmp)[1]
        assert "t[/b][red]:warning:␛[31m␊Run: yt remove //home\ufffd" in shown.replace("\\", "")
        assert not any(line.strip().startswith("Run:") for line in shown.splitlines())
        assert not {"\x1b", "\u202e"} & set(shown)


def test_console_prints_a_table_with_a_title(capsys):
    """Rich draws the title by another call of the console than the rest."""
    titled = shown([{"rows>": 1}], "")
    titled.title = "all"
    console().print(titled)
    assert "all" in capsys.readouterr().out


def test_status_says_how_fast_a_query_is_and_whether_it_is_stuck():
    """From the last batch and the age of what waits; a query that waits for nothing is not stuck."""
    one = query_status(lag=9_000, lag_seconds=90.0, source_rows=100, seconds=0.5)
    assert (one.rows_in, one.rows_out, one.catch_up_seconds) == (100.0, 200.0, 90.0)
    assert [hint.partition(" rows")[0] for hint in one.hints] == ["its last batch had 100"]
    slow = query_status(lag=9_000, lag_seconds=9.0, source_rows=100, seconds=2.0)
    assert slow.catch_up_seconds is None
    assert "the lag grows" in slow.hints[0]
    drained = query_status(lag=9_000, lag_seconds=90.0, source_rows=100, age_seconds=100.0)
    died = query_status(lag=9_000, lag_seconds=900.0, source_rows=100, age_seconds=400.0)
    unknown = query_status(lag=9_000, lag_seconds=None, source_rows=100, seconds=0.5)
    assert drained.hints == died.hints == unknown.hints == []
    (problem,) = query_status(lag=1, lag_seconds=301.0, age_seconds=301.0).problems
    assert "no batch for 301 s, and 1 rows wait" in problem
    assert query_status(lag=0, lag_seconds=0.0, age_seconds=9_000.0).problems == []
    assert query_status(lag=1, lag_seconds=5.0, age_seconds=301.0, seconds=40.0).problems == []


def query_status(*, lag, lag_seconds, source_rows=10, seconds=1.0, age_seconds=1.0):
    part = PartitionStatus(0, 0, 0, 0, 0, lag, lag_seconds)
    queue = QueueStatus("c", "//q", "//c", True, True, False, partitions=(part,))
    read = {("c", "//q", "//c", ""): {0: PartitionOffset(0, source_rows, 0, 0)}}
    entry = LedgerEntry(
        "query-12345", "//t", 1, "run", "tx", read, seconds=seconds, mode="transactional"
    )
    row = LedgerRow("//l", entry)
    return QueryStatus(row, age_seconds, (TargetStatus(path="//t", rows=4),), (queue,))


@pytest.mark.parametrize("width", [80, 250])
def test_no_number_and_no_path_is_split_on_any_terminal(width):
    """What does not fit beside becomes lines below each other."""
    one = query_status(lag=123_456_789_012, lag_seconds=7.0)
    screen = Console(file=StringIO(), width=width, force_terminal=True, color_system=None)
    screen.print(rendered([one], partitions=True))
    said = screen.file.getvalue().split()
    assert {"123456789012", "//t", "//q", "transactional"} <= set(said)


def test_one_more_query_costs_three_requests(cluster, tmp):
    """Those that carry rows: of its ledger, its consumer and its queue. Anything else is asked together."""

    def requests():
        before = cluster.request_counts()
        assert all(one.lag_rows == 8 for one in status(tmp, connection=connection))
        sent = cluster.request_counts() - before
        return sum(count for path, count in sent.items() if path.startswith("/api/v4/"))

    def add(number):
        made = Pipeline(cluster, f"{tmp}/{number}")
        made.client.create("map_node", made.folder)
        made.create()
        made.feed(5)
        made.run(1)
        return made.connection

    connection = add(0)
    one = requests()
    for number in range(1, 4):
        add(number)
    assert requests() == one + 3 * 3


def test_history_has_every_batch_and_no_batch_waits_for_it(cluster, tmp, tmp_path, monkeypatch):
    """Also one that could not be written costs the query nothing; old ones are removed."""
    monkeypatch.setattr(past_batches, "KEPT", 2)
    monkeypatch.setattr(past_batches, "_KEYS_PER_DELETE", 1)
    query = Operated(cluster, tmp, tmp_path / "checkpoint").create()
    query.options["history_path"] = f"{tmp}/history"
    for _ in range(4):
        query.feed(2)
        query.run()
        query.sink._engine._past._thread.shutdown()
    _, said = query.command(f"yt-exactly-once history {tmp}/history --json")
    found = json.loads(said)
    assert [one["batch_id"] for one in found] == [3, 2, 1]
    assert {(one["rows"], one["attempts"], one["sent_by"]) for one in found} == {(4, 1, "driver")}
    assert found[0]["offsets"][0]["partitions"]["1"][:2] == [6, 8]
    look = partial(history, f"{tmp}/history", connection=query.sink._engine.connection)
    now = datetime.now(UTC)
    assert len(look(since=now - timedelta(hours=1), until=now + timedelta(hours=1))) == 3
    assert look(until=datetime(2020, 1, 1)) == look(query="another") == []  # noqa: DTZ001 - UTC
    code, said = query.command(f"yt-exactly-once history {tmp}/history --until 2020-01-01")
    assert (code, "driver" in said) == (0, False)
    query.client.unmount_table(f"{tmp}/history", sync=True)
    query.feed(1)
    query.run()
    query.assert_exact()


def _static(path):
    def act(made):
        made.client.remove(getattr(made, path))
        made.client.create("table", getattr(made, path))

    return act


def _newer(made):
    (row,) = read_ledger(made.connection, made.ledger)
    made.client.insert_rows(made.ledger, [row.entry.to_row() | {"format_version": 99}])


BROKEN = {
    "ledger unmounted": lambda made: made.client.unmount_table(made.ledger, sync=True),
    "ledger of a newer version": _newer,
    "target gone": lambda made: made.client.remove(made.target),
    "target static": _static("target"),
    "queue gone": lambda made: made.client.remove(made.queue),
    "queue static": _static("queue"),
    "queue unmounted": lambda made: made.client.unmount_table(made.queue, sync=True),
    "consumer gone": lambda made: made.client.remove(made.consumer),
    "consumer static": _static("consumer"),
    "consumer unmounted": lambda made: made.client.unmount_table(made.consumer, sync=True),
    "nothing left but the ledger": lambda made: [
        made.client.remove(path) for path in (made.queue, made.consumer, made.target)
    ],
}


def test_every_query_is_shown_whatever_is_broken(cluster, tmp, told):
    """Each broken one has its problem, and the others have none; the exit code is for `--check` alone."""
    made = {}
    for number, name in enumerate(["nothing", *BROKEN, "nothing again"]):
        made[name] = Pipeline(cluster, f"{tmp}/{number}", query=f"q{number:02}-{'0' * 8}")
        made[name].client.create("map_node", made[name].folder)
        made[name].create()
        made[name].feed(2)
        made[name].run(1)
    assert told("status", tmp, "--check")[0] == 0
    for name, act in BROKEN.items():
        act(made[name])
    assert told("status", tmp)[0] == 0
    code, text = told("status", tmp, "--check")
    assert code == 1
    _, found = told("status", tmp, "--json")
    problems = {one.get("query_id", one["ledger"]): one["problems"] for one in found}
    for name, one in made.items():
        key = one.ledger if name.startswith("ledger") else one.query
        assert bool(problems.pop(key)) == (name in BROKEN), name
        assert (one.ledger if name.startswith("ledger") else one.query[:8]) in text
    assert not problems
