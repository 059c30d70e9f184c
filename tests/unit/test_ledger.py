"""The ledger: what an entry says about a batch, and what it refuses to guess."""

from contextlib import nullcontext
from dataclasses import dataclass, fields, replace

import pytest

from yt_exactly_once.commit import entry as ledger_entry
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange, TargetColumns
from yt_exactly_once.commit.consumers import offsets_of, plan_moves
from yt_exactly_once.commit.entry import LEDGER_VERSION, LedgerEntry, PartitionOffset
from yt_exactly_once.commit.judgement import (
    Verdict,
    judge,
    outdates,
    require_columns,
    require_one_sink,
    rows_to_come,
    shares,
    supersedes,
)
from yt_exactly_once.commit.ledger import (
    EARLIER_LEDGER_SCHEMA,
    LEDGER_MARK,
    LEDGER_SCHEMA,
    CommitLedger,
    require_known_ledger,
)
from yt_exactly_once.commit.lineage import lineage_of
from yt_exactly_once.commit.other_sources import LONGEST_TEXT, OtherSources
from yt_exactly_once.commit.tally import RowDigest, SentBy, TableRows, Tally
from yt_exactly_once.errors import (
    ConfigError,
    FencedError,
    LedgerDivergedError,
    LedgerError,
    NewerFormatError,
    OffsetConflictError,
    SchemaMismatchError,
)


def batch(number, *ranges, stateful=False, consumer="//c", queue_id=""):
    parts = tuple(PartitionRange(index, start, end) for index, (start, end) in enumerate(ranges))
    sources = (SourceRange("local", "//q", consumer, parts, queue_id),) if ranges else ()
    return MicroBatch("query", number, "run", sources, stateful)


def entry(of):
    return LedgerEntry(
        query_id=of.query_id,
        target="//t",
        batch_id=of.batch_id,
        run_id=of.run_id,
        transaction_id="1-2-3-4",
        offsets=offsets_of(of),
        committed_at="2026-01-01T00:00:00.000+00:00",
        tallies={"//t": Tally()},
    )


def verdict(of, now):
    return judge(of, now, ledger="//t_ledger")


def test_columns_of_a_ledger_are_its_format():
    """One row per query and target. Another name or type is another `LEDGER_VERSION`."""
    keys = [column["name"] for column in LEDGER_SCHEMA if column.get("sort_order") == "ascending"]
    assert (LEDGER_VERSION, keys) == (1, ["query_id", "target"])
    assert [(one["name"], one["type"], one["required"]) for one in LEDGER_SCHEMA] == [
        ("query_id", "string", True),
        ("target", "string", True),
        ("format_version", "int64", True),
        ("batch_id", "int64", True),
        ("run_id", "string", True),
        ("transaction_id", "string", True),
        ("part", "int64", True),
        ("part_count", "int64", True),
        ("other_sources", "string", True),
        ("mode", "string", True),
        ("attempts", "int64", True),
        ("started_at", "string", True),
        ("committed_at", "string", True),
        ("seconds", "double", True),
        ("part_digests", "any", False),
        ("offsets", "any", False),
        ("rows", "int64", True),
        ("total_rows", "int64", True),
        ("total_batches", "int64", True),
        ("rejected_rows", "int64", True),
        ("total_rejected_rows", "int64", True),
        ("bytes", "int64", True),
        ("total_bytes", "int64", True),
        ("sent_by", "string", True),
        ("batch_digest", "string", False),
        ("total_digest", "string", False),
        ("digest_version", "int64", False),
        ("digest_from_start", "boolean", False),
        ("digest_replaces", "boolean", False),
        ("tables", "any", False),
    ]
    assert {column["name"] for column in EARLIER_LEDGER_SCHEMA} == entry(batch(0)).to_row().keys()


@pytest.mark.parametrize("total", [0, 0xABCDEF0123456789, 2**64 - 1])
def test_digest_of_rows_is_read_as_it_was_written(total):
    """Tables keep it as text, for people who compare two of them."""
    digest = RowDigest(2**64 - 1 - total, total, from_start=True, replaces=True)
    assert RowDigest.from_row(digest.to_row()) == digest


def test_no_field_of_an_entry_stays_unwritten():
    """The columns are a list, so that no annotation changes the table: each field has its place in it."""
    columns = {column["name"] for column in LEDGER_SCHEMA}
    assert {one.name for one in fields(LedgerEntry)} - columns == {
        "advances",
        "columns",
        "query_name",
        "stateful",
        "tallies",
    }
    assert {one.name for one in fields(Tally)} - columns == {"digest"}

    @dataclass(frozen=True)
    class Later(LedgerEntry):
        more: int = 0

    assert Later(**vars(entry(batch(0)))).to_row().keys() == columns - {"tables"}


def test_columns_of_a_target_are_kept_also_without_a_queue():
    """Beside the facts, and not among the sources: an earlier version finds no more partitions there."""
    known = {"//a": ("n", "s.x"), "//b": ("m",)}
    for written in (entry(batch(3, (5, 9))), replace(entry(batch(3)), offsets={})):
        one = replace(written, target="//a", columns=known)
        read = LedgerEntry.from_row(one.to_row())
        assert (read.columns, read.offsets) == ({"//a": known["//a"]}, one.offsets)
        assert LedgerEntry.from_row(replace(one, target="//c").to_row()).columns == {}
        assert all(source.keys() >= {"queue", "partitions"} for source in one.to_row()["offsets"])


def test_facts_of_an_entry_are_kept_in_a_table_of_any_version():
    """They are beside the offsets, which earlier versions read. Of their entries, `left` tells instead."""
    known = replace(entry(batch(3, (5, 9))), stateful=False, advances=False)
    row = known.to_row()
    assert LedgerEntry.from_row(row) == known
    assert (known.keeps_state, known.moves_consumer) == (False, False)
    for source in row["offsets"]:
        del source["stateful"], source["advances"]
    assert (LedgerEntry.from_row(row).stateful, LedgerEntry.from_row(row).advances) == (None, None)
    for left, keeps, moves in ((0, True, False), (5, True, True), (9, False, True)):
        row["offsets"][0]["partitions"]["0"][2] = left
        old = LedgerEntry.from_row(row)
        assert (old.keeps_state, old.moves_consumer) == (keeps, moves)


def test_query_is_called_by_its_name_also_without_a_queue():
    """By that of a job; else by the first characters of its id, which always find it."""
    long = replace(entry(batch(3, (5, 9))), query_id="1b4e28ba-2fa1-11d2")
    for known in (long, replace(long, offsets={})):
        named = LedgerEntry.from_row(replace(known, query_name="orders").to_row())
        assert (named.name, named.label) == ("orders", "orders (1b4e28ba)")
        assert named.offsets == known.offsets
        assert all(map(named.is_of, (None, "", "1b4e", "orders")))
        assert not any(map(named.is_of, ("order", "b4e2")))
    assert (long.name, long.label) == ("1b4e28ba", "1b4e28ba-2fa1-11d2")
    job = replace(long, query_id="application:backfill")
    assert (job.name, job.is_of("backfill")) == ("backfill", True)


def test_batch_of_which_nothing_is_said_keeps_no_state_and_moves_no_queue():
    """So are the batches of sources that are no queues."""
    bare = MicroBatch("query", 0, "run")
    assert bare == MicroBatch("query", 0, "run", (), stateful=False, output_mode=None, others="")
    assert not bare.moves
    assert batch(0, (0, 0), (3, 4)).moves
    assert not batch(0, (0, 0), (3, 3)).moves


@pytest.mark.parametrize(
    ("known", "now", "expected"),
    [
        (None, batch(0, (0, 5)), Verdict.NEW),
        (entry(batch(3, (0, 5))), batch(3, (0, 5)), Verdict.REPLAY),
        (entry(batch(3, (0, 5), (7, 7))), batch(4, (5, 9), (7, 8)), Verdict.NEW),
        (entry(batch(3, (0, 5))), batch(4, (5, 9), (0, 8)), Verdict.NEW),
    ],
    ids=["empty ledger", "same offsets", "next batch", "queue with more partitions"],
)
def test_batch_that_agrees_with_the_ledger_is_new_or_a_replay(known, now, expected):
    """Consecutive ranges are the normal case; what was committed is found again."""
    assert verdict(known, now) is expected


def test_recreated_queue_is_another_queue():
    """Its rows are counted from 0 again, and its consumer may stand anywhere up to its start."""
    before, after = batch(3, (0, 90), queue_id="a"), batch(4, (2, 7), queue_id="b")
    assert verdict(entry(before), after) is Verdict.NEW
    assert plan_moves(after.sources[0], {0: 2}, entry(before), after, "//ledger") == {0: 7}
    assert LedgerEntry.from_row(entry(after).to_row()) == entry(after)


@pytest.mark.parametrize(
    ("then", "now", "text"),
    [
        (batch(3, (0, 5)), batch(3, (0, 6)), "other offsets"),
        (batch(4, (5, 9)), batch(3, (0, 5)), "already holds batch 4"),
        (batch(3, (0, 5)), batch(4, (4, 9)), "starts at 4, but the ledger ends at 5"),
        (batch(3, (0, 5)), batch(4, (6, 9)), "starts at 6, but the ledger ends at 5"),
    ],
    ids=["other-range", "older-batch", "overlap", "gap"],
)
def test_contradiction_is_an_error_not_a_skip(then, now, text):
    """A restored or foreign checkpoint never loses or repeats rows silently."""
    with pytest.raises(LedgerDivergedError, match=text):
        verdict(entry(then), now)


@pytest.mark.parametrize("stateful", [False, True])
def test_entry_survives_the_ledger_row(stateful):
    """Writing and reading back gives the same entry."""
    before = replace(
        entry(batch(3, (0, 5), (2, 2), stateful=stateful)),
        part=1,
        part_count=2,
        part_digests=("a",),
        other_sources="b",
        mode="idempotent",
        attempts=2,
        started_at="2025-12-31T23:59:58.500+00:00",
        seconds=1.5,
        tallies={"//t": Tally(1, 2, 3, 4, 5, 6, 7, SentBy.TASKS)},
    )
    assert LedgerEntry.from_row(before.to_row()) == before


def test_entry_of_a_batch_job_names_its_application():
    """Its id begins with a word that no query of Spark has."""
    job = replace(entry(batch(0)), query_id=f"{ledger_entry.APPLICATION_PREFIX}nightly load")
    assert (job.application, entry(batch(0)).application) == ("nightly load", "")


def test_foreign_row_is_an_error():
    """A table that somebody else writes is not a ledger."""
    with pytest.raises(LedgerError, match="cannot be read"):
        LedgerEntry.from_row({"query_id": "q", "target": "//t"})


def test_targets_of_different_transactions_are_an_error():
    """Targets that are written together must have been written together."""

    class Reader:
        def lookup(self, _path, keys):
            rows = [entry(batch(3, (0, 5))).to_row() for _ in keys]
            rows[1]["transaction_id"] = "other"
            return rows

    with pytest.raises(LedgerDivergedError, match="not written by the same transaction"):
        CommitLedger("//l", "query", ["//t", "//u"]).read(Reader())


def test_run_that_agreed_before_was_overtaken_by_another():
    """A driver that slept while another one took over is told so."""
    with pytest.raises(FencedError, match="committed batch 4"):
        judge(entry(batch(4, (5, 9))), batch(3, (0, 5)), ledger="//l", running=True)


@pytest.mark.parametrize("stateful", [False, True])
def test_idle_queue_is_recorded_where_its_consumer_is(stateful):
    """A queue without new rows keeps what the entry before said of it."""
    before = entry(batch(3, (0, 5), stateful=True))
    idle = offsets_of(batch(4, (5, 5), stateful=stateful), before)
    assert idle["local", "//q", "//c", ""][0].left == 0


def test_sink_that_does_not_advance_records_no_move():
    """Another sink of the same function moves the consumer."""
    recorded = offsets_of(batch(4, (5, 9)), None, moved=False)
    assert recorded["local", "//q", "//c", ""][0].left == 0


def moves(now, stands, before=None):
    return plan_moves(now.sources[0], dict(enumerate(stands)), before, now, "//ledger")


STATEFUL = entry(batch(3, (0, 5), stateful=True))


@pytest.mark.parametrize(
    ("now", "stands", "before", "expected"),
    [
        (batch(4, (5, 9), (7, 7)), [5, 7], entry(batch(3, (0, 5), (7, 7))), {0: 9}),
        # A replay must rebuild the state from these very rows, so they may not be trimmed yet.
        (batch(4, (5, 9), stateful=True), [0], STATEFUL, {0: 5}),
        # Once Spark has logged a batch, the source moves the consumer to its end.
        (batch(4, (5, 9), stateful=True), [5], STATEFUL, {}),
        # A query may begin later than its consumer stands.
        (batch(0, (5, 9)), [3], None, {0: 9}),
    ],
    ids=["stateless", "stateful", "moved by the source", "first batch"],
)
def test_batch_moves_the_consumer_to_its_end_or_with_state_to_its_start(
    now, stands, before, expected
):
    """Everything that no replay will need is consumed."""
    assert moves(now, stands, before) == expected


@pytest.mark.parametrize(
    ("now", "stands", "before", "expected"),
    [
        (batch(0, (5, 9)), 6, None, "0 to 5"),
        (batch(4, (5, 9)), 6, entry(batch(3, (0, 5))), "5"),
        (batch(4, (5, 9)), 4, entry(batch(3, (0, 5))), "5"),
        (batch(4, (5, 9), stateful=True), 6, entry(batch(3, (0, 5), stateful=True)), "0 to 5"),
    ],
    ids=["first-batch-ahead", "ahead", "behind", "stateful-ahead"],
)
def test_consumer_that_somebody_moved_is_an_error(now, stands, before, expected):
    """Both numbers and the way out are named."""
    told = rf"is at row {stands} of partition 0, expected {expected} \["
    with pytest.raises(OffsetConflictError, match=told):
        moves(now, [stands], before)


READ = batch(3, (0, 5)).sources
OTHERWISE = batch(3, (0, 7)).sources


@pytest.mark.parametrize(
    ("number", "logged", "accepted", "refused"),
    [
        (6, READ, (), ""),
        (5, READ, (), ""),
        (6, (), (4, 5), ""),
        (6, (), (), "call it for every batch"),
        (6, OTHERWISE, (), "call it for every batch"),
        (6, (), (4,), "starts at 9"),
        (6, (), (5,), "starts at 9"),
        (4, READ, (), "starts at 9"),
    ],
    ids=[
        *("logged", "one batch", "accepted", "forgotten", "logged otherwise"),
        *("first accepted", "last accepted", "no batch is missing"),
    ],
)
def test_gap_is_settled_by_the_log_or_by_a_person(number, logged, accepted, refused):
    """A function that leaves empty batches out is common; Spark's log tells that it is the same query.

    Without it, it may be another checkpoint, and rows may be missing. All batches in the gap need to be
    accepted. Where no batch is missing, a gap between the rows has no excuse.
    """
    asked = []

    def told(number):
        asked.append(number)
        return logged

    known = {"ledger": "//l", "logged": told, "accepted": accepted}
    with pytest.raises(LedgerDivergedError, match=refused) if refused else nullcontext():
        assert judge(entry(batch(3, (0, 5))), batch(number, (9, 12)), **known) is Verdict.NEW
        assert asked in ([3], [])


@pytest.mark.parametrize("known", [{"logged": lambda _: READ}, {"accepted": (4,)}])
def test_no_gap_excuses_rows_that_come_again(known):
    """Spark's offline repartition may abandon a batch that is committed, and read on from before it."""
    with pytest.raises(LedgerDivergedError, match="starts at 3, but the ledger ends at 5"):
        judge(entry(batch(3, (0, 5))), batch(5, (3, 8)), ledger="//l", **known)


def test_gap_is_refused_where_there_is_no_log():
    """Then nothing says that the sink was not called in between."""
    with pytest.raises(LedgerDivergedError, match="call it for every batch"):
        verdict(entry(batch(3, (0, 5))), batch(6, (9, 12)))


def test_batch_after_an_unfinished_one_is_refused():
    """The parts that are missing would never be written."""
    unfinished = replace(entry(batch(3, (0, 5))), part=1, part_count=2)
    with pytest.raises(LedgerDivergedError, match="Only 1 of 2 parts of batch 3"):
        verdict(unfinished, batch(4, (5, 9)))
    assert verdict(unfinished, batch(3, (0, 5))) is Verdict.PARTIAL


def test_same_batch_with_other_rows_of_other_sources_is_refused():
    """A restored checkpoint may plan a batch of files or of Kafka anew, with more in it."""
    committed = replace(batch(3, (0, 5)), others="a")
    known = replace(entry(committed), other_sources="a")
    assert verdict(known, committed) is Verdict.REPLAY
    with pytest.raises(LedgerDivergedError, match="sources that are no queues"):
        verdict(known, replace(committed, others="b"))
    with pytest.raises(LedgerDivergedError, match="sources that are no queues"):
        verdict(entry(committed), committed)


def test_replay_of_other_sources_is_one_whatever_of_them_the_entry_keeps():
    """Readable offsets, or the digest of them: of too many, or by an earlier version."""
    offsets = OtherSources(({"orders": {"0": 4}},), ({"orders": {"0": 9}},))
    grown = replace(offsets, latest=({"orders": {"0": 12}},))
    other = replace(offsets, end=({"orders": {"0": 8}},))
    now = replace(batch(3, (0, 5)), others=grown.to_text())
    for kept in (offsets.to_text(), grown.to_text(), DIGEST_OF_ORDERS):
        assert verdict(replace(entry(now), other_sources=kept), now) is Verdict.REPLAY
    for kept in (other.to_text(), other.digest, ""):
        with pytest.raises(LedgerDivergedError, match="sources that are no queues"):
            verdict(replace(entry(now), other_sources=kept), now)


def test_offsets_are_counted_by_topic_and_partition():
    """Of a topic that is read twice the earlier ones count. Other sources count in ways of their own."""
    before = OtherSources((), ({"t": {"0": 4}},))
    now = OtherSources(before.end, ({"t": {"0": 9, "1": 2}}, {"t": {"0": 7}}), ({"t": {"0": 12}},))
    assert now.topics() == [("t", 0, 4, 7, 12), ("t", 1, None, 2, None)]
    assert [each.lag_rows for each in now.topics()] == [5, None]
    assert now.topics()[0]._replace(latest=6).lag_rows == 0, "it has grown since Spark looked"
    assert before.rows_until(now) == 5
    for text in ('{"logOffset": 3}', '{"t": 3}', "no JSON"):
        other = OtherSources.from_log((), (text,))
        assert (other.topics(), before.rows_until(other)) == (None, None)


def test_lineage_names_what_a_batch_has_read():
    """A queue or topic without new rows is left out."""
    others = OtherSources(
        ({"t": {"0": 4}},), ({"t": {"0": 9}, "idle": {"0": 3}},), ({"idle": {"0": 3}},)
    )
    others = replace(others, start=({"t": {"0": 4}, "idle": {"0": 3}},))
    said = lineage_of(replace(entry(batch(3, (0, 5), (2, 2))), other_sources=others.to_text()))
    queue, topic = said["inputs"]
    assert (queue["queue"], queue["ranges"]) == ("//q", {"0": [0, 5]})
    assert topic == {"topic": "t", "ranges": {"0": [4, 9]}}
    assert said["outputs"] == {"//t": 0}


@pytest.mark.parametrize(("running", "error"), [(True, FencedError), (False, SchemaMismatchError)])
def test_batch_without_a_column_that_another_run_has_written_is_refused(running, error):
    """It would write nulls. The run that wrote it may leave it out, and a target may be new."""
    written = replace(entry(batch(3)), run_id="other", columns={"//t": ("a", "b"), "//new": ("c",)})
    for lost, has in ((False, ("a", "b", "c")), (True, ("a",))):
        columns = {"//t": TargetColumns(has)}
        with pytest.raises(error, match=": b") if lost else nullcontext():
            require_columns(written, batch(4), columns, ledger="//l", running=running)
    own = replace(written, run_id="run")
    for known in (own, None):
        require_columns(known, batch(4), columns, ledger="//l", running=running)


def test_entry_keeps_offsets_by_topic_and_digests_too_many():
    many = {str(number): number for number in range(LONGEST_TEXT // 10)}
    kept = [OtherSources((), ({"t": offsets},)) for offsets in ({"1": 7, "0": 3}, many)]
    few, large = (replace(entry(batch(0)), other_sources=one.to_text()) for one in kept)
    assert [each[:4] for each in few.others.topics()] == [("t", 0, None, 3), ("t", 1, None, 7)]
    assert (large.others, large.other_sources) == (None, kept[1].digest)
    # A digest may look like a number.
    assert [OtherSources.from_text(text) for text in ("", "1" * 64, "{}")] == [None] * 3


DIGEST_OF_ORDERS = "67eb4a5c4d6c24620db232dfbca807203d966f65e264083f0f8f869b93d6a9ce"
"""What was kept before offsets were."""


def test_entry_of_this_run_that_the_sink_did_not_write_is_of_another_sink():
    """Taken for a replay, the rows of the second sink would silently be left out."""
    now = batch(3, (0, 5))
    found = entry(now)
    require_one_sink(found, now, {found.transaction_id}, ledger="//l")
    require_one_sink(replace(found, run_id="an earlier run"), now, (), ledger="//l")
    with pytest.raises(ConfigError, match="a target of its own"):
        require_one_sink(found, now, {"another"}, ledger="//l")


def test_tallies_count_the_parts_of_a_batch_and_every_batch():
    """Each target has its own; a batch in several parts is one batch; rejected rows are apart."""
    ledger = CommitLedger("//l", "query", ["//a", "//b"])
    first = ledger.tallies(None, batch(0, (0, 5)), {"//a": Tally(3, rejected_rows=2, bytes=30)})
    assert first == {
        "//a": Tally(3, 3, 1, rejected_rows=2, total_rejected_rows=2, bytes=30, total_bytes=30),
        "//b": Tally(0, 0, 1),
    }
    before = replace(entry(batch(0, (0, 5))), tallies=first)
    assert before.batch_rows == before.source_rows == 5
    assert before.batch_bytes == 30
    assert ledger.tallies(before, batch(0, (0, 5)), {"//a": Tally(2, rejected_rows=1, bytes=8)})[
        "//a"
    ] == Tally(5, 5, 1, rejected_rows=3, total_rejected_rows=3, bytes=38, total_bytes=38)
    assert ledger.tallies(
        before, batch(1, (5, 6)), {"//a": Tally(2, bytes=9, sent_by=SentBy.TASKS)}
    )["//a"] == Tally(
        2,
        5,
        2,
        rejected_rows=0,
        total_rejected_rows=2,
        bytes=9,
        total_bytes=39,
        sent_by=SentBy.TASKS,
    )


def test_tally_of_a_pattern_has_the_rows_of_each_table():
    """Of the last batch, whose parts need not write into all of them, and of all batches."""
    ledger = CommitLedger("//l", "query", ["//t/{a}"])

    def after(before, number, **written):
        tables = {
            f"//{name}": TableRows(rows, rows, None if name == "z" else MOST)
            for name, rows in written.items()
        }
        part = Tally(sum(written.values()), tables=tables)
        before = before and replace(entry(batch(before[0])), tallies={"//t/{a}": before[1]})
        return number, ledger.tallies(before, batch(number), {"//t/{a}": part})["//t/{a}"]

    first = after(None, 0, x=2, y=1)
    second = after(first, 0, y=4)
    third = after(second, 1, z=3)
    assert second[1].tables == {"//x": (2, 2, MOST), "//y": (5, 5, MOST - 1)}
    assert third[1].tables == {"//x": (0, 2, MOST), "//y": (0, 5, MOST - 1), "//z": (3, 3, None)}
    known = replace(entry(batch(1)), target="//t/{a}", tallies={"//t/{a}": third[1]})
    assert LedgerEntry.from_row(known.to_row()) == known
    assert known.tables == ("//x", "//y", "//z")
    of_table = known.of_table("//y")
    assert (of_table.target, of_table.tally.rows, of_table.tally.total_rows) == ("//y", 0, 5)
    assert of_table.tally.digest == RowDigest(0, MOST - 1, from_start=True)
    assert known.of_table("//z").tally.digest is None


MOST = 2**64 - 1


def digest_after(*parts):
    """Return the digest of `//t` after parts of batches, each as the batch and what is written."""
    ledger, before = CommitLedger("//l", "query", ["//t"]), None
    for number, written in parts:
        now = batch(number, (number, number + 1))
        given = {} if written is None else {"//t": written}
        before = replace(entry(now), tallies=ledger.tallies(before, now, given))
    assert before is not None
    return before.tallies["//t"].digest


@pytest.mark.parametrize(
    ("parts", "digest"),
    [
        ([(0, Tally(2, digest=RowDigest(MOST))), (1, Tally(1, digest=RowDigest(3)))], (3, 2, True)),
        ([(0, Tally(2, digest=RowDigest(5))), (0, Tally(1, digest=RowDigest(3)))], (8, 8, True)),
        ([(0, Tally(2, digest=RowDigest(5))), (0, None)], (5, 5, True)),
        (
            [(0, Tally(2, digest=RowDigest(5))), (1, Tally(1)), (2, Tally(1, digest=RowDigest(3)))],
            (3, 3, False),
        ),
        ([(0, Tally(2)), (1, Tally(1, digest=RowDigest(3)))], (3, 3, False)),
        (
            [(0, Tally(2, digest=RowDigest(5))), (1, Tally(1, digest=RowDigest(3, replaces=True)))],
            (3, 3, False),
        ),
    ],
    ids=["batches", "parts", "part-without-rows", "switched-off", "switched-on", "replacing"],
)
def test_digests_add_up_and_say_whether_they_cover_every_batch(parts, digest):
    """Of the last batch, of all batches, and whether all of them have one."""
    found = digest_after(*parts)
    assert (found.batch, found.total, found.from_start) == digest


def test_digest_is_dropped_when_the_target_no_longer_keeps_it():
    """A total without some batches would be wrong."""
    assert digest_after((0, Tally(2, digest=RowDigest(5))), (1, Tally(1))) is None


def test_digest_of_another_version_of_the_hash_is_no_digest():
    """It cannot be compared. The rest of the tally can be read."""
    digest = RowDigest(1, MOST, from_start=True, replaces=False)
    row = Tally(1, 1, 1, digest=digest).to_row()
    assert Tally.from_row(row).digest == digest
    row["digest_version"] = 0
    assert Tally.from_row(row) == Tally(1, 1, 1)


def test_each_target_has_its_own_statistics_in_its_row():
    """The entry that is read has those of all targets."""
    digest = RowDigest(7, MOST, from_start=True, replaces=False)
    tallies = {
        "//a": Tally(1, 2, 3, digest=digest),
        "//b": Tally(4, 5, 6, rejected_rows=2, total_rejected_rows=7),
    }
    written = replace(entry(batch(3, (0, 5))), target="//a", tallies=tallies)
    table = {}

    class Table:
        def insert(self, _path, rows):
            table.update({row["target"]: row for row in rows})

        def lookup(self, _path, keys):
            return [table[key["target"]] for key in keys]

    ledger = CommitLedger("//l", "query", ["//a", "//b"])
    ledger.record(Table(), written)
    assert ledger.read(Table()) == written
    assert [table[target]["rows"] for target in ("//a", "//b")] == [1, 4]
    assert written.batch_rows == 7


def test_entry_of_a_newer_version_is_refused_and_one_of_an_older_version_is_read(monkeypatch):
    """What a newer version means by its columns is unknown; a guess could lose rows or repeat them."""
    row = entry(batch(3, (0, 5))).to_row()
    monkeypatch.setattr(ledger_entry, "LEDGER_VERSION", LEDGER_VERSION + 1)
    newer = entry(batch(3, (0, 5))).to_row()
    assert LedgerEntry.from_row(row) == entry(batch(3, (0, 5)))
    monkeypatch.undo()
    with pytest.raises(
        NewerFormatError, match=f"version {LEDGER_VERSION + 1}.* knows {LEDGER_VERSION}"
    ):
        LedgerEntry.from_row(newer)
    with pytest.raises(NewerFormatError):
        require_known_ledger({LEDGER_MARK: LEDGER_VERSION + 1}, "//l")


def read_by(query, *ends, consumer="//c", target="//t", queue="//q", firsts=(0, 0)):
    """Return the entry of a query that has read partitions of a queue up to these rows."""
    parts = {
        number: PartitionOffset(first, end, end, first)
        for number, (first, end) in enumerate(zip(firsts, ends, strict=False))
    }
    return LedgerEntry(query, target, 3, "run", "1-2", {("", queue, consumer, "1-1"): parts})


@pytest.mark.parametrize(("later", "continues"), [
    (read_by("other", 5, 9), True),
    (read_by("other", 5, 8), False),
    (read_by("other", 4, 9), False),
    (read_by("other", 9), False),
    (read_by("query", 5, 9), False),
    (read_by("other", 5, 9, target="//u"), False),
    (read_by("other", 5, 9, consumer="//d"), False),
    (read_by("other", 5, 9, queue="//r"), False),
    (read_by("other", 5, 9, queue="//r", consumer="//d", firsts=(5, 8)), True),
    (read_by("other", 6, 9, queue="//r", consumer="//d", firsts=(6, 8)), False),
    (read_by("other", 9, queue="//r", consumer="//d", firsts=(5,)), False),
    (read_by("other", 5, 9, queue="//r", consumer="", firsts=(5, 8)), False),
])  # fmt: skip
def test_a_query_is_continued_by_one_that_reads_on_everywhere(later, continues):
    """Into the same target, behind no end of it and beyond one, with its consumer or from where it ended."""
    entry = read_by("query", 5, 8)
    assert supersedes(later, entry) == continues
    moved = later.offsets.keys() == entry.offsets.keys() and later.query_id != entry.query_id
    assert shares(later, entry, "//q", "//c") == (moved and not continues)


def test_a_query_without_consumers_is_continued_by_none():
    """Nothing says then who reads for whom."""
    assert not supersedes(read_by("other", 9, consumer=""), read_by("query", 5, consumer=""))
    assert not supersedes(read_by("other", 9), replace(read_by("query", 5), offsets={}))


def at_batch(number, *, target="//t", **changed):
    read = {"consumer": "//c", "queue": "//q"} | changed
    return replace(read_by("query", 5, target=target, **read), batch_id=number, advances=True)


@pytest.mark.parametrize(("later", "counts"), [
    (at_batch(4), True),
    (replace(at_batch(3), part=2), True),
    (at_batch(3), False),
    (at_batch(2), False),
    (replace(at_batch(4), query_id="other"), False),
    (at_batch(4, target="//u"), True),
    (at_batch(3, target="//u"), False),
    (at_batch(9, target="//u", queue="//r"), False),
    (replace(at_batch(9, target="//u"), offsets={}), False),
    (replace(at_batch(9, target="//u"), advances=False), False),
])  # fmt: skip
def test_of_entries_of_a_query_the_newest_counts(later, counts):
    """With another target, if its sink is the last of the function: that moves the consumer of both."""
    assert outdates(later, at_batch(3)) is counts


def beside(number, **changed):
    return replace(at_batch(number, **{"target": "//u"} | changed), advances=False)


@pytest.mark.parametrize(("entry", "rows"), [
    (beside(3), 4),
    (replace(beside(3), offsets={key: {} for key in beside(3).offsets}), 5),
    (beside(2), 0),
    (beside(4), 0),
    (beside(3, target="//t"), 0),
    (beside(3, queue="//r"), 0),
    (at_batch(3, target="//u"), 0),
])  # fmt: skip
def test_sink_that_is_called_last_may_have_a_batch_to_write(entry, rows):
    """If it moves no consumer, has another target, and has written the batch before."""
    last = at_batch(4)
    (key,) = last.offsets
    last = replace(last, offsets={key: {0: PartitionOffset(4, 9, 9)}})
    assert rows_to_come(last, entry) == rows


@pytest.mark.parametrize(("number", "counts"), [(5, True), (4, False)])
def test_without_a_consumer_two_sinks_may_be_a_batch_apart(number, counts):
    """Nothing tells which one is called last."""
    later = at_batch(number, target="//u", consumer="")
    assert outdates(later, at_batch(3, consumer="")) is counts
