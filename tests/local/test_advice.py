"""Advice is executed as it is printed: the query then runs, and every row is in the target once."""

import json
import re
import shutil
from collections import Counter
from contextlib import suppress
from unittest import mock

import pytest

from tests.local.operated import TARGET_SCHEMA, Operated, UndecidedError
from tests.remedies import ROOT, unfollowed
from tests.tiers import first_of
from yt_exactly_once import Target, TransactionalSink
from yt_exactly_once.errors import DataLossError, LedgerDivergedError, OffsetConflictError
from yt_exactly_once.local import LocalClusterError
from yt_exactly_once.ytsaurus import browsing, queues


@pytest.fixture
def query(cluster, tmp, tmp_path):
    made = Operated(cluster, tmp, tmp_path / "checkpoint").create()
    made.feed(10)
    made.run(rows=6)
    made.assert_exact()
    return made


def by_doctor(query):
    """Ask first, do all that it says, and ask again: nothing is left."""
    repairs = query.repairs()
    assert repairs
    for repair in repairs:
        query.follow(repair)
    assert query.repairs() == []
    assert query.restart_with_advice() == []


def by_status(query):
    """The same with `status`."""
    code, said = query.command(f"yt-exactly-once status {query.folder} --check")
    assert code == 1
    query.follow(said)
    code, said = query.command(f"yt-exactly-once status {query.folder} --check")
    assert code == 0, said
    assert query.restart_with_advice() == []


@pytest.mark.parametrize("asked", first_of([by_doctor, by_status]))
def test_removed_consumer_is_put_back_where_the_query_left_it(query, asked):
    """One that is only created again is at row 0, from where a new checkpoint repeats every row."""
    query.client.remove(query.consumer)
    query.feed(5)
    asked(query)
    query.assert_exact()


def consumer_of(query):
    rows = query.client.select_rows(f"* from [{query.consumer}]")
    return {row["partition_index"]: row["offset"] for row in rows}


def test_consumer_after_the_ledger_moves_back_by_the_checkpoint_alone(query):
    """The ledger may be an older copy: the tools say to start the query, and the error has the command."""
    query.feed(5)
    query.client.advance_queue_consumer(query.consumer, query.queue, 1, 10, 13)
    given = f"--checkpoint {query.checkpoint}"
    said = [
        query.doctor()[1],
        *(
            query.command(f"yt-exactly-once {ask} {query.target}")[1]
            for ask in ("status", "repair")
        ),
        query.command(f"yt-exactly-once repair {query.target} --apply")[1],
    ]
    assert ["Start the query: if" in " ".join(one.split()) for one in said] == [True] * 4
    assert not [one for one in said if "yt-exactly-once repair" in one]
    assert consumer_of(query) == {0: 10, 1: 13}
    (repair,) = query.repairs(given)
    query.follow(repair)
    assert (consumer_of(query), query.repairs(given)) == ({0: 10, 1: 10}, [])
    assert query.restart_with_advice() == []
    query.assert_exact()


def test_consumer_of_a_function_that_leaves_batches_out_stays(query):
    """It has no entry for them, and Spark's log has: with the checkpoint, no tool finds a problem."""
    query.feed(5)
    with mock.patch.object(TransactionalSink, "__call__"):
        query.run()
    assert consumer_of(query) == {0: 15, 1: 15}
    given = f"--checkpoint {query.checkpoint}"
    assert query.repairs(given) == []
    code, said = query.command(f"yt-exactly-once repair {query.target} {given}")
    assert (code, "nothing to change" in said) == (0, True), said
    left_out = query.fed[-10:]
    query.feed(5)
    query.run()
    query.assert_exact([value for value in query.fed if value not in left_out])


def test_checkpoint_of_another_query_proves_nothing(query, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(query.checkpoint, other)
    (other / "metadata").write_text('{"id": "another"}')
    for place, said in (
        (other, "is of query another"),
        (tmp_path / "none", "There is no checkpoint"),
    ):
        code, text = query.command(f"yt-exactly-once repair {query.target} --checkpoint {place}")
        assert (code, said in text) == (2, True), text


def test_new_checkpoint_begins_after_the_last_row_of_the_ledger(query, tmp_path):
    """However the consumer was lost: the checkpoint is, too."""
    query.client.remove(query.consumer)
    query.feed(5)
    old, query.checkpoint = query.query_id, tmp_path / "another"
    query.follow("Run: yt-exactly-once repair TARGET --new-checkpoint --apply.")
    query.run()
    query.assert_exact()
    # The rows of the old query are read by the new one: it neither waits for them nor has lost them.
    query.feed(5)
    query.run()
    query.client.trim_rows(query.queue, 0, 20)
    shown = json.loads(query.command(f"yt-exactly-once status {query.target} --json")[1])
    assert [(one["successor"], one["lag_rows"], one["problems"]) for one in shown] == [
        ("", 0, []),
        (query.query_id, 0, []),
    ]
    assert shown[1]["query_id"] == old
    assert old not in query.doctor()[1]


def test_new_checkpoint_without_a_consumer_begins_at_the_same_row(query, tmp_path):
    """The option that says so is printed: without it every row would be there twice."""
    query.consumer = ""
    query.checkpoint = tmp_path / "first"
    query.source_options["starting_offsets"] = '{"0": 10, "1": 10}'
    query.feed(5)
    query.run()
    del query.source_options["starting_offsets"]
    query.checkpoint = tmp_path / "second"
    query.feed(5)
    said = query.command(f"yt-exactly-once repair {query.target} --new-checkpoint --apply")[1]
    query.follow(said)
    query.run()
    query.assert_exact()


def test_sink_with_one_more_target_begins_after_the_last_row(query, tmp_path, monkeypatch):
    """A new checkpoint alone, as the error once said, reads every row again where no consumer is."""
    query.consumer, query.checkpoint = "", tmp_path / "first"
    query.source_options["starting_offsets"] = '{"0": 10, "1": 10}'
    query.feed(5)
    query.run()
    del query.source_options["starting_offsets"]
    query.create_table(f"{query.folder}/more", TARGET_SCHEMA)
    paths, given = [query.target, f"{query.folder}/more"], {"ledger_path": query.ledger}
    monkeypatch.setattr(query, "make_sink", lambda: make_sink(query, paths, given))
    query.feed(5)
    with pytest.raises(LedgerDivergedError, match="not written by the same") as stopped:
        query.run()
    query.follow(query.follow(stopped.value.remedy))
    query.checkpoint = tmp_path / "second"
    query.run()
    query.assert_exact()
    query.target = paths[1]
    query.assert_exact([*query.fed[-10:]])


def make_sink(query, paths, given):
    return TransactionalSink([Target(path) for path in paths], proxy=query.proxy, **given)


def test_newest_entry_counts_whichever_ledger_is_named(query):
    """By an old copy the consumer would go back, and the next repair would move it on again."""
    query.client.unmount_table(query.ledger, sync=True)
    query.client.copy(query.ledger, f"{query.folder}/a_copy")
    for path in (query.ledger, f"{query.folder}/a_copy"):
        query.client.mount_table(path, sync=True)
    query.feed(5)
    query.run()
    repair = f"yt-exactly-once repair {query.folder}/a_copy --query {query.query_id}"
    assert query.command(repair)[0] == 0
    query.client.remove(query.consumer)
    query.follow(f"Run: {repair} --apply.")
    query.feed(5)
    query.run()
    query.assert_exact()


def test_query_whose_driver_commits_is_not_repaired(query, monkeypatch):
    """What was planned is not true any more, and two drivers would write the same rows."""
    query.feed(5)
    monkeypatch.setattr("yt_exactly_once.operations.repair.sleep", lambda _: query.run())
    repair = f"yt-exactly-once repair {query.target} --new-checkpoint --apply"
    code, said = query.command(repair)
    assert (code, "A driver of this query is alive" in said) == (2, True), said
    query.feed(5)
    assert query.command(f"{repair} --force")[0] == 0


@pytest.fixture
def with_two_sinks(cluster, tmp, tmp_path):
    """A query whose function has two, and which has more to read."""
    query = Operated(cluster, tmp, tmp_path / "checkpoint").create()
    query.besides = [f"{tmp}/besides"]
    query.create_table(*query.besides, TARGET_SCHEMA)
    query.feed(10)
    query.run()
    query.feed(2)
    return query


def test_new_checkpoint_counts_the_rows_of_each_sink_of_the_function(with_two_sinks, tmp_path):
    """The driver died between two commits of one batch: the target that has it gets it again."""
    query = with_two_sinks
    query.kill("besides")
    query.client.unmount_table(query.ledger, sync=True)
    said = query.command(f"yt-exactly-once repair {query.besides[0]} --new-checkpoint --apply")[1]
    query.follow(said)
    for path in (*query.besides, query.target):
        repair = f"yt-exactly-once repair {path} --new-checkpoint --apply"
        code, said = query.command(repair)
        assert (code, "--accept-repeated 4" in said) == (2, True), said
    assert query.command(f"{repair} --accept-repeated 4")[0] == 0
    query.checkpoint = tmp_path / "another"
    query.run()
    query.assert_exact()
    query.target = query.besides[0]
    assert query.written() - Counter(query.fed) == Counter(query.fed[-4:])


def test_new_checkpoint_counts_what_a_sink_lacks_that_is_called_last(with_two_sinks):
    """The sink that moves the consumer was called first, and the driver died before the other one."""
    query = with_two_sinks
    (late,), query.besides = query.besides, []
    query.kill("sink")
    for path in (late, query.target):
        repair = f"yt-exactly-once repair {path} --new-checkpoint --apply"
        code, said = query.command(repair)
        assert (code, f"{late} may lack batch 1, 4 rows" in said) == (2, True), said
        assert "--accept-lost 4" in said
        assert "fail_on_data_loss" not in said
    assert query.command(f"yt-exactly-once repair {path}")[0] == 0, (
        "its own checkpoint replays the batch"
    )
    assert query.command(f"{repair} --accept-lost 4")[0] == 0


def test_two_runs_of_one_query_are_told_apart(query, tmp_path):
    """A copied checkpoint with another target: no tool advises to move the consumer under the other run."""
    first, ledger = (query.target, query.checkpoint), query.ledger
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    query.target, query.checkpoint = f"{query.folder}/second", tmp_path / "copy"
    query.create_table(query.target, TARGET_SCHEMA)
    query.options["new_ledger"] = True
    query.feed(5)
    query.run()
    query.target, query.checkpoint = first
    query.options.clear()
    with pytest.raises(
        OffsetConflictError, match="of this very query has moved it: with batch 1"
    ) as stopped:
        query.run()
    assert "'A checkpoint was copied'" in stopped.value.remedy
    assert "/second_ledger" in query.doctor()[1]
    for command in ("status --check", "repair"):
        name, *more = command.split()
        code, said = query.command(f"yt-exactly-once {name} {ledger} {' '.join(more)}")
        assert (code, "/second" in said) == (0, True), said
    assert query.repairs() == []
    # As the page says, for who gives the second target up.
    for line in (
        f"ledger prune {query.folder}/second --query {query.query_id} --target {query.folder}/second --yes",
        f"repair {query.target} --checkpoint {query.checkpoint} --apply",
    ):
        assert query.command(f"yt-exactly-once {line}")[0] == 0
    query.run()
    query.assert_exact()


def test_ordered_target_of_an_old_copy_is_named_by_every_tool(query):
    """It has had fewer rows than the query has written."""
    (row,) = query.client.select_rows(f"* from [{query.ledger}]")
    query.client.insert_rows(query.ledger, [row | {"total_rows": 99}])
    said = [query.doctor()[1], query.command(f"yt-exactly-once status {query.target}")[1]]
    assert [
        "restored from an old copy, and lacks 79" in one.replace("\n", " ") for one in said
    ] == [True, True]


def _entry(query, **changed):
    (row,) = query.client.select_rows(f"* from [{query.ledger}]")
    query.client.insert_rows(query.ledger, [row | changed])


def _stateful(query):
    (row,) = query.client.select_rows(f"offsets from [{query.ledger}]")
    return [source | {"stateful": True} for source in row["offsets"]]


def _recreated(query, trimmed=0):
    query.client.remove(query.queue)
    query.create_queue()
    query.feed(8)
    query.client.trim_rows(query.queue, 1, trimmed)


def _tasks_may_have_written(query):
    _entry(query, mode="at-least-once")
    query.feed(3)


def _ledger_of_yesterday(query):
    (row,) = query.client.select_rows(f"* from [{query.ledger}]")
    query.feed(2)
    query.run()
    query.client.insert_rows(query.ledger, [row])


AT_STAKE = {
    "new queue trimmed": (lambda query: _recreated(query, 3), "", "--accept-lost 3"),
    "tasks write": (_tasks_may_have_written, "--new-checkpoint", "--accept-repeated 6"),
    "ledger is a copy": (_ledger_of_yesterday, "--new-checkpoint", "--accept-repeated 4"),
    "tasks write, new queue": (
        lambda query: (_entry(query, mode="idempotent"), _recreated(query)),
        "--new-checkpoint",
        "--accept-repeated 16",
    ),
    "state": (
        lambda query: _entry(query, offsets=_stateful(query)),
        "--new-checkpoint",
        "The query keeps state",
    ),
    "other sources": (
        lambda query: _entry(query, other_sources="files"),
        "--new-checkpoint",
        "only its checkpoint knows",
    ),
}
"""What a repair would repeat or lose, and what must be accepted."""


@pytest.mark.parametrize("broken", first_of(AT_STAKE, count=2))
def test_repair_that_is_not_exact_wants_its_number_and_changes_nothing_before(query, broken):
    """The flag is the one that the refusal prints."""
    act, how, flag = AT_STAKE[broken]
    act(query)
    repair = f"yt-exactly-once repair {query.target} {how} --apply"
    before = list(query.client.select_rows(f"* from [{query.consumer}]"))
    code, said = query.command(repair)
    assert (code, flag in said) == (2, True), said
    assert list(query.client.select_rows(f"* from [{query.consumer}]")) == before
    if flag.startswith("--"):
        assert query.command(f"{repair} {flag}")[0] == 0


@pytest.mark.parametrize(
    ("touched", "waiting"),
    first_of([("moved to 0", True), ("moved to 0", False), ("nothing", True), ("nothing", False)]),
)
def test_recreated_queue_is_read_from_its_first_row(query, touched, waiting):
    """With a batch of the old queue in Spark's log too, and after somebody has moved the consumer."""
    if waiting:
        query.feed(3)
        query.kill("sink")
    query.client.remove(query.queue)
    query.create_queue()
    query.feed(8)
    if touched == "moved to 0":
        query.client.register_queue_consumer(query.queue, query.consumer, vital=True)
        said = query.follow(
            f"Run: yt-exactly-once rewind {query.consumer} {query.queue} --to earliest "
            f"--ledger {query.ledger} --force --yes."
        )
        assert "Leave the consumer where it is" in said
        assert "OffsetConflictError" not in said
    query.restart_with_advice()
    query.assert_exact()
    assert unfollowed("queue recreated", query.followed) == []


@pytest.mark.parametrize("waiting", first_of([True, False]))
def test_another_queue_behind_the_path_is_read_from_its_first_row(query, waiting):
    """What `repair` prints is enough: the server has other rows of the consumer for another queue."""
    if waiting:
        query.feed(3)
        query.kill("sink")
    query.link_queue("new")
    query.feed(8)
    query.follow(query.command(f"yt-exactly-once repair {query.target} --apply")[1])
    move = f"{query.consumer} {query.queue} --to earliest --ledger {query.ledger} --dry-run"
    assert "There is nothing to rewind" in query.command(f"yt-exactly-once rewind {move}")[1]
    query.run()
    query.assert_exact()
    rows = query.client.select_rows(f"queue_path, [offset] from [{query.consumer}]")
    assert {"queue_path": f"{query.queue}_new", "offset": 8} in list(rows)
    query.feed(2)
    query.run()
    assert query.doctor(f"--checkpoint {query.checkpoint}")[0] == 0


@pytest.mark.parametrize("lost", [True, False])
def test_renamed_queue_with_a_link_in_its_place_is_not_read_again(
    query, tmp_path, monkeypatch, lost
):
    """The server keeps rows of a consumer by the path without links: those of the new path begin at 0."""
    monkeypatch.setattr(queues, "_PAUSE_SECONDS", 0.05)
    query.feed(5)
    if not lost:
        query.kill("sink")
    query.client.unmount_table(query.queue, sync=True)
    query.client.move(query.queue, f"{query.queue}_new")
    query.client.mount_table(f"{query.queue}_new", sync=True)
    query.client.link(f"{query.queue}_new", query.queue)
    if lost:
        query.follow("Run: yt-exactly-once repair TARGET --new-checkpoint --apply.")
        query.checkpoint = tmp_path / "another"
    query.restart_with_advice()
    query.feed(5)
    query.run()
    query.assert_exact()


def test_copy_in_the_place_of_the_queue_is_not_read_again(query, tmp_path, monkeypatch):
    """It has the rows that are written. Whoever begins behind them, as the page says, has each row once."""
    monkeypatch.setattr(browsing, "_CLOCKS_SECONDS", 0)
    client, copy = query.client, f"{query.queue}_copy"
    client.freeze_table(query.queue, sync=True)
    client.copy(query.queue, copy)
    client.remove(query.queue)
    client.move(copy, query.queue)
    client.mount_table(query.queue, sync=True)
    client.register_queue_consumer(query.queue, query.consumer, vital=True)
    query.feed(5)
    for query.loss in (False, True):
        with pytest.raises(DataLossError, match="A copy of a queue is in the place") as stopped:
            query.run()
        assert "'The queue was put back from a copy'" in stopped.value.remedy
    for command in ("status", "repair", "repair --apply"):
        said = query.command(f"yt-exactly-once {command} {query.target}")[1]
        assert "'The queue was put back from a copy'" in " ".join(said.split()), said
    assert "a copy is in the place" in query.doctor()[1]
    query.checkpoint = tmp_path / "another"
    query.run()
    query.assert_exact()


def test_recreated_queue_that_trims_itself_keeps_its_rows_until_they_are_read(query, cluster):
    """It would trim what the consumer has passed in the old one."""
    query.client.remove(query.queue)
    query.create_queue()
    query.client.set(f"{query.queue}/@auto_trim_config", {"enable": True})
    query.feed(8)
    _, said = query.command(f"yt-exactly-once repair {query.target} --apply")
    query.follow(said)
    # Queues that other tests have broken stay as they are.
    with suppress(LocalClusterError):
        cluster.trim_queues()
    query.restart_with_advice()
    query.assert_exact()
    assert unfollowed("queue recreated, and trimmed by itself", query.followed) == []


@pytest.fixture
def second(query, tmp_path):
    """Return the id of a second query that has moved the consumer of the first; its ledger is its own."""
    first = query.target, query.checkpoint
    query.target, query.checkpoint = f"{query.folder}/second", tmp_path / "second"
    query.create_table(query.target, TARGET_SCHEMA)
    query.feed(1)
    query.run()
    name = query.query_id
    query.target, query.checkpoint = first
    return name


def test_consumer_that_another_query_has_moved_is_free_once_that_is_gone(query, second):
    """Every tool names it. Its entry is removed as they say, and the first query gets the consumer back."""
    looks = [
        query.command(f"yt-exactly-once status {query.target}"),
        query.doctor(),
        query.command(f"yt-exactly-once repair {query.ledger} --apply"),
    ]
    for _, said in looks:
        assert (second in said, f"{query.folder}/second" in said) == (True, True), said
        assert "'The consumer has moved'" in said
        assert f"repair {query.ledger}" not in said
    assert "Nothing was changed" in said
    with pytest.raises(OffsetConflictError, match=f"Query {second} has moved it too") as stopped:
        query.run()
    assert stopped.value.remedy in looks[-1][1].replace("\n", " ")
    query.restart_with_advice()
    query.assert_exact()
    assert unfollowed("consumer of two queries", query.followed) == []


@pytest.mark.usefixtures("second")
def test_second_query_on_one_consumer_gets_its_own_as_the_page_says(query):
    """Nothing is lost or repeated, and no query moves the consumer of the other again."""
    (parts,) = (
        entry["partitions"]
        for row in json.loads(
            query.command(f"yt-exactly-once ledger show {query.target} --json")[1]
        )
        for entry in row["offsets"]
    )
    page = (ROOT / "docs/how-to/recover.md").read_text()
    (steps,) = re.findall(r"### Two queries on one consumer.*?```sh\n(.*?)```", page, re.DOTALL)
    create, move = steps.strip().splitlines()
    own = f"{query.folder}/own"
    given = {"//home/shop/own-consumer": own, "//home/shop/orders": query.queue}
    for old, new in given.items():
        create, move = create.replace(old, new), move.replace(old, new)
    ends = {number: end for number, (_, end, *_) in parts.items()}
    moves = [
        move.replace("PARTITION", number).replace("END", str(end)) for number, end in ends.items()
    ]
    for line in (create, *moves):
        code, said = query.command(line)
        assert code == 0, said
    old, query.consumer = query.query_id, own
    query.checkpoint = query.checkpoint.with_name("own")
    query.run()
    query.assert_exact()
    query.command(f"yt-exactly-once ledger prune {query.target} --query {old} --yes")
    assert query.command(f"yt-exactly-once status {query.folder} --check")[0] == 0


def test_rows_of_a_batch_are_found_as_the_page_says(query):
    """By the columns that say where a row is from, and by its values in the queue."""
    columns = [f"__spyt_streaming_src_{name}_index" for name in ("tablet", "row")]
    offset = query._offset(0)
    start, end = (offset[name]["0"] for name in ("start", "partitions"))
    result = f"{query.folder}/result"
    query.create_table(result, [{"name": name, "type": "int64"} for name in columns])
    query.client.insert_rows(result, [dict(zip(columns, (0, end - 1), strict=True))])
    page = (ROOT / "docs/how-to/recover.md").read_text()
    for block in re.findall(r"^```sh\n(yt select-rows .*?)\n```", page, re.MULTILINE | re.DOTALL):
        line = block.replace("//home/shop/result", result)
        line = line.replace("//home/shop/orders", query.queue)
        line = line.replace("40 and 59", f"{start} and {end - 1}")
        code, said = query.command(line)
        assert (code, bool(said.strip())) == (0, True), said


def test_old_checkpoint_is_not_started_over_a_newer_one(query):
    """Its rows were written by the newer query, which continues."""
    old, newer = query.checkpoint, query.checkpoint.with_name("newer")
    query.feed(5)
    query.checkpoint = newer
    query.run()
    query.checkpoint = old
    query.feed(3)
    with pytest.raises(UndecidedError, match="has continued this one from another checkpoint"):
        query.restart_with_advice()
    query.checkpoint = newer
    query.run()
    query.assert_exact()


def test_doctor_names_a_ledger_that_is_gone(query):
    """The notes in the checkpoint know that there was one."""
    query.client.remove(query.ledger)
    (repair,) = query.repairs(f"--checkpoint {query.checkpoint}")
    assert "'A ledger is missing'" in repair


def test_notes_that_were_deleted_are_missed(query):
    """By the sink at its next start, and by the doctor before and after it; the query continues."""
    events = []
    query.options["listener"] = lambda event, _fields: events.append(event)
    shutil.rmtree(query.checkpoint / "yt_exactly_once")
    for _ in range(2):
        query.feed(3)
        repairs = query.repairs(f"--checkpoint {query.checkpoint}", levels=("warning ",))
        assert "rows of the target" in query.follow(repairs[-1])
        query.run(rows=2)
        assert events.count("notes.missing") == 1
    query.assert_exact()


@pytest.mark.parametrize("mode", ["transactional", "at-least-once"])
def test_notes_of_a_healthy_query_are_not_missed(cluster, tmp, tmp_path, mode):
    """From its first batch on, after a crash at any place, and with batches that were left out."""
    events = []
    query = Operated(cluster, tmp, tmp_path / "checkpoint", mode=mode).create()
    query.options["listener"] = lambda event, _fields: events.append(event)
    for die_after in ("offsets", "sink", "offsets"):
        query.feed(5)
        query.kill(die_after, rows=2)
        query.run(rows=2)
    assert "batch.committed" in events
    assert "notes.missing" not in events
    assert "lacks notes" not in query.doctor(f"--checkpoint {query.checkpoint}")[1]


def test_ledger_that_was_moved_is_found(query):
    """Beside its target, by its mark; the sink gets the path."""
    query.client.unmount_table(query.ledger, sync=True)
    query.client.move(query.ledger, f"{query.folder}/state")
    query.client.mount_table(f"{query.folder}/state", sync=True)
    query.feed(3)
    for repair in query.repairs(f"--checkpoint {query.checkpoint}", levels=("warning ",)):
        query.follow(repair)
    query.run()
    query.assert_exact()


def test_unmounted_ledger_does_not_hide_the_other_queries(query, cluster, tmp_path):
    """It is named, with what to do."""
    other = Operated(cluster, f"{query.folder}/other", tmp_path / "other").create()
    other.feed(2)
    other.run()
    query.client.unmount_table(query.ledger, sync=True)
    query.client.unmount_table(other.queue, sync=True)
    for command in ("status", "ledger list"):
        _, said = query.command(f"yt-exactly-once {command} {query.folder}")
        assert other.query_id[:8] in said
        assert f"yt mount-table {query.ledger} --sync" in said
    by_status(query)
    query.assert_exact()
    assert unfollowed("ledger and queue unmounted", query.followed) == []


@pytest.mark.parametrize("log", [(2, 1), (2, 2), (2, 3), (1, 2)])
def test_doctor_has_no_advice_on_a_log_of_spark_of_any_version(query, log):
    """Named sources, ids of state, names of sinks: a checkpoint may change its version while it lives."""
    query.log = log
    for die_after in ("offsets", "sink"):
        query.feed(4)
        query.kill(die_after, rows=2)
        query.run(rows=2)
    query.assert_exact()
    asked = f"--checkpoint {query.checkpoint}"
    assert query.repairs(asked, levels=("problem ", "unknown ")) == []
    query.consumer += "_other"
    assert "The checkpoint belongs to the consumer" in query.doctor(asked)[1]


def test_batch_that_spark_adds_for_state_alone_is_no_batch_that_is_missing(query):
    """Of an offline repartition: the ledger ends before it, and nothing was left out."""
    last = query._newest("offsets")
    for folder in ("offsets", "commits"):
        shutil.copy(
            query.checkpoint / folder / str(last), query.checkpoint / folder / str(last + 1)
        )
    asked = f"--checkpoint {query.checkpoint}"
    assert query.repairs(asked) == []
    query.feed(4)
    query.run()
    query.assert_exact()
    assert query.repairs(asked) == []


@pytest.mark.parametrize(("log", "stops"), [((3, 1), True), ((1, 4), False)])
def test_doctor_keeps_a_log_of_a_later_spark(query, log, stops):
    """It is not torn, so no command of a repair is given; the sink reads the offsets alone."""
    (query.checkpoint / "offsets" / "1").write_text(f"v{log[0]}\n{{}}")
    (query.checkpoint / "commits" / "0").write_text(f"v{log[1]}\n{{}}")
    code, said = query.doctor(f"--checkpoint {query.checkpoint}")
    assert ("torn" in said, "yt-exactly-once repair" in said, bool(code)) == (False, False, stops)
    assert f"has version {max(log)} of Spark's log" in " ".join(said.split())


def _torn(query):
    batches = [file for file in (query.checkpoint / "offsets").iterdir() if file.name.isdecimal()]
    max(batches, key=lambda file: int(file.name)).write_text("")


CHECKPOINTS = {
    "offsets gone": lambda query: shutil.rmtree(query.checkpoint / "offsets"),
    "offsets torn": _torn,
    "one offset gone": lambda query: (query.checkpoint / "offsets/0").unlink(),
    "metadata gone": lambda query: (query.checkpoint / "metadata").unlink(),
    "all gone": lambda query: shutil.rmtree(query.checkpoint),
}


@pytest.mark.parametrize("broken", first_of(CHECKPOINTS))
def test_doctor_names_what_spark_cannot_start_on(query, broken):
    """Spark says AssertionError or IllegalStateException; a new checkpoint continues with the next row."""
    query.feed(4)
    CHECKPOINTS[broken](query)
    asked = f"--checkpoint {query.checkpoint}"
    (repair,) = query.repairs(asked)
    query.follow(repair)
    query.checkpoint = query.checkpoint.with_name("another")
    query.run()
    query.assert_exact()
    assert query.repairs(f"--checkpoint {query.checkpoint}") == []
