"""`audit`: one lost, one repeated and one changed row are found, and a good target is called exact."""

from contextlib import suppress

import pyarrow as pa
import pytest

from tests.contract.tables import columns, create, key_columns
from tests.local.pipelines import TARGET_SCHEMA, Pipeline
from yt_exactly_once.codec.rows import row_fragments
from yt_exactly_once.codec.schema import TableSchema, check_frame
from yt_exactly_once.errors import ConfigError, LedgerError, UnprovableError
from yt_exactly_once.operations.audit import by_digest, by_source, ranges
from yt_exactly_once.operations.audit.found import By, SourceColumns, Verdict
from yt_exactly_once.operations.audit.run import audit
from yt_exactly_once.operations.ledgers import read_ledger
from yt_exactly_once.spark.sink.complete import CompleteResult
from yt_exactly_once.ytsaurus.queues import RemoteQueue

COLUMNS = SourceColumns("part", "row")


def row(part, index, value=None):
    return {"part": part, "row": index, "value": index * 10 + part if value is None else value}


def written(end):
    return [row(part, index) for part in range(2) for index in range(end)]


@pytest.fixture(autouse=True)
def several_reads(monkeypatch):
    monkeypatch.setattr(ranges, "ROWS_PER_READ", 7)


@pytest.fixture(params=["ordered", pytest.param("sorted", marks=pytest.mark.further)])
def pipeline(request, cluster, client, tmp, monkeypatch):
    monkeypatch.setattr(by_source, "BUCKET", 8)
    made = Pipeline(cluster, tmp)
    if request.param == "sorted":
        schema = [*key_columns(value="int64", row="int64"), *columns(part="int64")]
        create(client, made.target, schema, mount=False)
    made.create()
    made.feed(40)
    return made


def look(pipeline, **options):
    return audit(pipeline.target, columns=COLUMNS, **options, connection=pipeline.connection)


def test_good_target_is_exact(pipeline, monkeypatch):
    """Whatever order its rows have, and while the query goes on."""
    pipeline.run(30)
    seen = []
    found = look(pipeline, progress=lambda *done: seen.append(done))
    assert found.exact
    assert (found.rows, found.compared, found.newer) == (60, ("value",), 0)
    assert seen[-1] == (pipeline.queue, 60, 60)
    real = by_source.Comparison.run
    monkeypatch.setattr(
        by_source.Comparison, "run", lambda *given, **more: pipeline.run(5) or real(*given, **more)
    )
    found = look(pipeline)
    assert (found.newer, found.unknown, found.exact) == (10, 0, True)


@pytest.mark.parametrize("mode", ["transactional", "at-least-once"])
def test_rows_that_no_ledger_knows_are_of_unknown_origin(cluster, tmp, mode):
    """An older ledger was put back, or somebody has written them; tasks may have written those of a batch."""
    pipeline = Pipeline(cluster, tmp, mode=mode).create()
    pipeline.feed(40)
    pipeline.run(30)
    pipeline.client.insert_rows(pipeline.target, [row(0, 31)])
    found = look(pipeline)
    counted = (0, 1, False) if mode == "transactional" else (1, 0, True)
    assert (found.newer, found.unknown, found.exact) == counted


def test_lost_repeated_and_changed_rows_are_found(pipeline):
    """Each with its place."""
    rows = [*written(30), row(1, 29, value=5)]
    rows.remove(row(0, 17))
    rows.remove(row(1, 4))
    rows.append(row(1, 4, value=77))
    pipeline.run(30, written=rows)
    first, second = look(pipeline).partitions
    assert (first.lost, first.repeated, first.changed) == (1, 0, 0)
    assert first.examples["lost"] == (17,)
    assert (second.lost, second.repeated, second.changed) == (0, 1, 2)
    assert second.examples == {"lost": (), "repeated": (29,), "changed": (4, 29)}
    assert not look(pipeline, compare=False).exact


def test_rows_with_the_values_of_others_are_changed(pipeline):
    """All values are there, next to each other: the service columns got to other rows."""
    rows = written(30)
    rows[3], rows[5] = row(0, 3, value=50), row(0, 5, value=30)
    pipeline.run(30, written=rows)
    first, second = look(pipeline).partitions
    assert (first.changed, first.examples["changed"], second.changed) == (2, (3, 5), 0)


def test_rows_of_unknown_origin_are_no_rows_of_the_query(pipeline):
    """Somebody else has written them."""
    pipeline.run(30, written=[*written(30), row(5, 1), row(0, -3)])
    found = look(pipeline)
    assert (found.unknown, found.exact) == (2, False)
    begun_later = look(pipeline, start=4)
    assert begun_later.unknown == 10


def test_values_are_compared_as_far_as_the_queue_has_them(pipeline, told):
    """Presence is proven for all, and the rest is said; whoever asks for presence alone is answered."""
    pipeline.run(30, written=[*written(30)[1:], row(0, 0, value=3)])
    assert look(pipeline).partitions[0].changed == 1
    pipeline.client.trim_rows(pipeline.queue, 0, 10)
    found = look(pipeline)
    assert found.verdict is Verdict.UNPROVEN
    assert "the values of rows 0 to 15 of partition 0" in found.unproven[0]
    assert [part.compared_from for part in found.partitions] == [16, 0]
    command = ["audit", pipeline.target, "--partition-column", "part", "--row-column", "row"]
    assert [told(*command)[0], told(*command, "--no-values")[0]] == [1, 0]


@pytest.mark.parametrize(
    "order", [{}, pytest.param({"sort_order": "ascending"}, marks=pytest.mark.further)]
)
def test_memory_does_not_grow_with_the_size_of_a_row(cluster, tmp, monkeypatch, order):
    """Only the first range of each table has as many bytes as its rows make it."""
    monkeypatch.setattr(ranges, "ROWS_PER_READ", 100_000)
    monkeypatch.setattr(ranges, "BYTES_PER_READ", 20_000)
    real, read = ranges.selected, []
    monkeypatch.setattr(ranges, "selected", lambda *given: read.append(real(*given)) or read[-1])
    schema = [{**one, **order} for one in TARGET_SCHEMA[:2]]
    schema += [TARGET_SCHEMA[2], {"name": "note", "type": "string"}]
    pipeline, wide = Pipeline(cluster, tmp, target_schema=schema).create(), {"note": "x" * 1000}
    source, rows = pipeline.next(300)
    fed = [{"$tablet_index": one["part"], "value": one["value"], **wide} for one in rows]
    pipeline.client.insert_rows(pipeline.queue, fed)
    pipeline.commit([source], [{**one, **wide} for one in rows])
    found = look(pipeline)
    assert (found.exact, found.compared) == (True, ("value", "note"))
    assert sum(map(len, read)) > 2 * 600 * 1000
    assert sum(len(one) > 25_000 for one in read) == 2


QUEUE_COLUMN = {"name": "queue", "type": "string"}


@pytest.mark.further
def test_rows_of_several_queues_are_told_apart_by_the_column_with_the_queue(
    cluster, tmp, monkeypatch
):
    """Rows of two queues have the same partition and index."""
    monkeypatch.setattr(by_source, "BUCKET", 8)
    schema = [*TARGET_SCHEMA, QUEUE_COLUMN]
    one = Pipeline(cluster, tmp, target_schema=schema, digest=True).create()
    two = Pipeline(cluster, tmp, target_schema=schema, queue_name="other").create()
    one.client.register_queue_consumer(two.queue, one.consumer, vital=True)
    sources, rows = [], []
    for made, count in ((one, 9), (two, 20)):
        made.feed(20)
        source, copied = made.next(count)
        sources.append(source)
        rows += [{**copy, "queue": made.queue} for copy in copied]
    wrong = [dict(copy) for copy in rows]
    lost = wrong.pop(4)
    wrong[-1]["value"] = 3
    wrong.append(wrong[-5])
    one.commit(sources, rows, wrong)
    columns = SourceColumns("part", "row", "queue")
    found = audit(one.target, columns=columns, connection=one.connection)
    assert found.queues == (two.queue, one.queue)
    assert [
        (part.queue, part.partition, part.lost, part.repeated, part.changed)
        for part in found.partitions
    ] == [
        (two.queue, 0, 0, 0, 0),
        (two.queue, 1, 0, 1, 1),
        (one.queue, 0, 1, 0, 0),
        (one.queue, 1, 0, 0, 0),
    ]
    assert found.partitions[2].examples["lost"] == (lost["row"],)
    assert not found.unknown
    with pytest.raises(ConfigError, match="read 2 queues"):
        audit(one.target, columns=COLUMNS, connection=one.connection)
    assert not audit(one.target, connection=one.connection).exact


def test_rows_of_a_queue_that_is_read_through_a_link_are_its_own(cluster, tmp):
    """They have the path that the source was given, and the ledger has the other one."""
    made = Pipeline(cluster, tmp, target_schema=[*TARGET_SCHEMA, QUEUE_COLUMN]).create()
    made.client.link(made.queue, f"{tmp}/link")
    made.feed(20)
    source, rows = made.next(9)
    columns = SourceColumns("part", "row", "queue")
    for name, of_nobody in ((f"{tmp}/link", 0), ("//no/link", 18), ("no path", 36)):
        made.client.insert_rows(made.target, [{**row, "queue": name} for row in rows])
        if not of_nobody:
            made.commit([source], rows, [])
        found = audit(made.target, columns=columns, connection=made.connection)
        assert (found.exact, found.unknown) == (not of_nobody, of_nobody)
        assert sum(one.lost + one.repeated for one in found.partitions) == 0


def digested(cluster, tmp, **options):
    made = Pipeline(cluster, tmp, digest=True, **options).create()
    made.feed(40)
    return made


def by_its_digest(pipeline, **options):
    return audit(pipeline.target, by=By.DIGEST, **options, connection=pipeline.connection)


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(by_digest, "PAUSE_SECONDS", 0)


def test_digest_of_a_good_target_is_that_of_the_ledger(cluster, tmp, told):
    """Over batches, and whatever order its rows have; `ledger show` prints it too."""
    pipeline = digested(cluster, tmp)
    pipeline.run(10)
    source, rows = pipeline.next(10)
    pipeline.commit([source], rows, rows[::-1])
    seen = []
    found = by_its_digest(pipeline, progress=lambda *done: seen.append(done))
    assert found.exact
    assert (found.rows, found.expected_rows, found.modes) == (40, 40, ("transactional",))
    assert found.digest == found.expected_digest != ""
    assert seen[-1] == (pipeline.target, 40, 40)
    # It is the default where there is nothing better.
    assert audit(pipeline.target, connection=pipeline.connection).by is By.DIGEST
    assert audit(pipeline.target, compare=False, connection=pipeline.connection).by is By.COUNT
    said = told("ledger", "show", pipeline.target)[1].splitlines()
    assert ["total_digest:", found.digest] in [line.split() for line in said]


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize(
    ("fault", "rows"),
    [
        (lambda rows: [*rows[1:], {**rows[0], "value": 7}], 20),
        (lambda rows: [*rows[1:], rows[3]], 20),
        pytest.param(lambda rows: rows[1:], 19, marks=pytest.mark.further),
        pytest.param(lambda rows: [*rows, rows[3]], 21, marks=pytest.mark.further),
        pytest.param(lambda rows: [*rows[2:], *[rows[3]] * 2], 20, marks=pytest.mark.nightly),
        pytest.param(
            lambda rows: [*rows[1:], {**rows[0], "value": None}], 20, marks=pytest.mark.nightly
        ),
    ],
    ids=["changed", "lost-and-doubled", "lost", "doubled", "lost-and-trebled", "null"],
)
def test_digest_shows_one_row_that_is_lost_doubled_or_changed(cluster, tmp, fault, rows):
    """Also where the number of rows is right."""
    pipeline = digested(cluster, tmp)
    source, copied = pipeline.next(10)
    pipeline.commit([source], copied, fault(copied))
    found = by_its_digest(pipeline)
    assert (found.rows, found.exact) == (rows, False)
    assert found.digest != found.expected_digest


@pytest.mark.further
def test_sorted_target_is_proven_while_no_row_replaces_another(cluster, tmp):
    """Then rows that are gone cannot be told from rows that were replaced."""
    schema = [*key_columns(row="int64"), *columns(part="int64", value="int64")]
    pipeline = digested(cluster, tmp, target_schema=schema)
    source, rows = pipeline.next(10)
    rows = [{**row, "row": number} for number, row in enumerate(rows)]
    pipeline.commit([source], rows)
    assert by_its_digest(pipeline).exact
    pipeline.client.insert_rows(pipeline.target, [{**rows[3], "value": 1}])
    assert not by_its_digest(pipeline).exact
    pipeline.client.insert_rows(pipeline.target, [rows[3], {**rows[3], "row": 77}])
    assert by_its_digest(pipeline).rows == 21
    pipeline.client.delete_rows(pipeline.target, [{"row": 77}, {"row": 3}])
    with pytest.raises(UnprovableError, match="19 rows, and 20 were written"):
        by_its_digest(pipeline)
    with pytest.raises(UnprovableError, match="later rows replace earlier ones"):
        audit(pipeline.target, by=By.COUNT, connection=pipeline.connection)


@pytest.mark.further
def test_target_whose_rows_are_replaced_has_the_digest_of_the_last_batch(cluster, tmp):
    """It holds nothing else, if one query writes it, and not while it is read."""
    schema = [*key_columns(row="int64"), *columns(part="int64", value="int64")]
    pipeline = digested(cluster, tmp, target_schema=schema)
    keys = check_frame(
        pa.schema([(one["name"], pa.int64()) for one in schema]),
        TableSchema.from_yt(schema),
        target=pipeline.target,
        sorted=True,
    ).keys
    for count in (9, 4):
        source, rows = pipeline.next(count)
        rows = rows[:count]
        given = pa.RecordBatch.from_pylist([{"row": row["row"]} for row in rows])
        complete = CompleteResult(keys, row_fragments(given, keys), 100)
        pipeline.commit([source], rows, complete=complete)
        assert by_its_digest(pipeline).rows == count
    assert by_its_digest(pipeline).exact
    pipeline.client.insert_rows(pipeline.target, [{**rows[0], "value": 1}])
    assert not by_its_digest(pipeline).exact

    def write_on(*_told):
        source, rows = pipeline.next(1)
        given = pa.RecordBatch.from_pylist([{"row": row["row"]} for row in rows[:1]])
        complete = CompleteResult(keys, row_fragments(given, keys), 100)
        pipeline.commit([source], rows[:1], complete=complete)

    with pytest.raises(UnprovableError, match="written while the sorted target was read"):
        by_its_digest(pipeline, progress=write_on)
    pipeline.query, pipeline.batch = "query-2", 0
    write_on()
    with pytest.raises(UnprovableError, match="2 queries have written this target"):
        by_its_digest(pipeline)


@pytest.mark.further
@pytest.mark.usefixtures("no_pause")
def test_what_a_digest_cannot_prove_is_refused(cluster, tmp):
    """With the reason, and with what is possible instead."""
    pipeline = digested(cluster, tmp)
    pipeline.digest = False
    pipeline.run(3)
    with pytest.raises(UnprovableError, match="has no digest"):
        by_its_digest(pipeline)
    assert audit(pipeline.target, connection=pipeline.connection).by is By.COUNT
    pipeline.digest = True
    pipeline.run(3)
    with pytest.raises(UnprovableError, match="does not cover the first rows") as caught:
        by_its_digest(pipeline)
    assert "--by count" in caught.value.remedy
    assert (
        audit(pipeline.target, by=By.COUNT, connection=pipeline.connection).verdict
        is Verdict.UNPROVEN
    )
    trimmed = digested(cluster, f"{tmp}/trimmed")
    trimmed.run(3)
    trimmed.client.trim_rows(trimmed.target, 0, 2)
    with pytest.raises(UnprovableError, match="2 rows of the target were trimmed"):
        by_its_digest(trimmed)
    with pytest.raises(ConfigError, match="for an audit by source"):
        by_its_digest(trimmed, columns=COLUMNS)


@pytest.mark.further
def test_commits_during_the_audit_are_not_judged(cluster, tmp, monkeypatch):
    """The ledger and the target are looked at until they agree. A sorted target must stay as it is."""
    pipeline = digested(cluster, tmp)
    pipeline.run(1)
    real, commits = RemoteQueue.state, iter([1, 1, 0])

    def state(queue):
        if queue.path == pipeline.target and next(commits, 1):
            pipeline.run(1)
        return real(queue)

    monkeypatch.setattr(by_digest, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(RemoteQueue, "state", state)
    found = by_its_digest(pipeline)
    assert (found.exact, found.rows) == (True, 6)
    with pytest.raises(UnprovableError, match="between 10 looks"):
        by_its_digest(pipeline)


@pytest.mark.further
def test_every_target_of_a_sink_is_found_in_its_ledger(cluster, tmp, told):
    """The ledger has the name of the first one; the command takes several."""
    pipeline = digested(cluster, tmp)
    other = Pipeline(cluster, tmp, target_name="zoo").create()
    pipeline.client.remove(other.ledger)
    source, rows = pipeline.next(4)
    pipeline.commit([source], rows, targets=[pipeline.target, other.target])
    code, said = told("audit", pipeline.target, other.target)
    assert (code, said.count("digest of the target")) == (0, 2)
    pipeline.client.insert_rows(other.target, [row(0, 1)])
    code, found = told("audit", pipeline.target, other.target, "--by", "digest", "--json")
    assert [one["exact"] for one in found["targets"]] == [True, False]
    assert (code, found["exact"]) == (1, False)
    with pytest.raises(LedgerError, match="No ledger in the folder"):
        audit(pipeline.queue, connection=pipeline.connection)
    with pytest.raises(LedgerError, match="The ledger has no entry"):
        audit(pipeline.queue, ledger=pipeline.ledger, connection=pipeline.connection)


def test_of_copies_of_a_ledger_the_newest_counts(cluster, tmp):
    """Also if the copy is found first."""
    made = Pipeline(cluster, tmp)
    made.ledger = f"{tmp}/state"
    made.create()
    made.feed(10)
    made.run(3)
    made.client.unmount_table(made.ledger, sync=True)
    made.client.copy(made.ledger, f"{tmp}/a_copy")
    for path in (made.ledger, f"{tmp}/a_copy"):
        made.client.mount_table(path, sync=True)
    made.run(4)
    assert audit(made.target, by=By.COUNT, connection=made.connection).verdict is Verdict.UNPROVEN


@pytest.mark.usefixtures("no_pause")
def test_target_without_sources_is_counted(cluster, tmp, told):
    """The command says what was compared, and never that counts alone prove anything."""
    pipeline = Pipeline(cluster, tmp).create()
    pipeline.feed(5)
    pipeline.run(5)
    command = ["audit", pipeline.target]
    code, said = told(*command)
    assert (code, said.endswith("NOT proven\n")) == (1, True)
    assert "the ledger accounts for 10" in said
    code, found = told(*command, "--by", "count", "--json")
    assert (code, found["targets"][0]["verdict"]) == (0, "NOT proven")
    pipeline.client.insert_rows(pipeline.target, [row(0, 1)])
    code, found = told(*command, "--json")
    assert (code, found["exact"]) == (1, False)
    other = Pipeline(cluster, f"{tmp}/pushed", mode="idempotent").create()
    other.feed(1)
    other.run(1, written=written(2))
    code, said = told("audit", other.target)
    assert (code, "In this mode rows are in the target before" in said) == (1, True)
    columns = ["--partition-column", "part", "--row-column", "row"]
    code, said = told(*command, *columns)
    assert (code, "repeated 1" in said, "NOT exact" in said) == (1, True, True)
    assert told(*command, *columns[:2])[0] == 2
    with pytest.raises(ConfigError, match="no column nowhere"):
        audit(
            pipeline.target,
            columns=SourceColumns("part", "nowhere"),
            connection=pipeline.connection,
        )


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("by", [By.COUNT, By.DIGEST])
def test_rows_from_before_the_ledger_are_not_called_wrong(cluster, tmp, by):
    """A ledger that was lost, and begun again with `new_ledger=True`, counts later batches alone."""
    pipeline = digested(cluster, tmp)
    pipeline.run(5)
    pipeline.run(5)
    pipeline.client.remove(pipeline.ledger)
    pipeline.create()
    pipeline.run(5)
    found = audit(pipeline.target, by=by, connection=pipeline.connection)
    assert (found.rows, found.expected_rows, found.verdict) == (30, 10, Verdict.UNPROVEN)
    assert "counted 1 of 3 batches" in found.unproven[0]
    assert look(pipeline).exact
    fewer = Pipeline(cluster, f"{tmp}/fewer", digest=True, at=[5, 5], batch=1).create()
    fewer.feed(10)
    fewer.run(5, written=written(2))
    assert audit(fewer.target, by=by, connection=fewer.connection).verdict is Verdict.WRONG
    whole = Pipeline(cluster, f"{tmp}/whole", digest=True, batch=1).create()
    whole.feed(10)
    whole.run(5, written=written(7))
    assert audit(whole.target, by=by, connection=whole.connection).verdict is Verdict.WRONG


def _damaged(pipeline, change):
    """Commit rows, of which others are in the target than the ledger counts."""
    rows = written(6)
    change(rows)
    pipeline.run(6, written=rows)


def _edited_and_trimmed(pipeline):
    """The queue has no rows any more to compare with."""
    _damaged(pipeline, lambda rows: rows[0].update(value=77))
    for part in range(2):
        pipeline.client.trim_rows(pipeline.queue, part, 6)


def _swapped(rows):
    for one in rows:
        one["part"] = 1 - one["part"]


def _again(begin, end, first=6):
    """A query with a new checkpoint reads from another row on than the first one has ended at."""

    def act(pipeline):
        pipeline.run(first)
        pipeline.client.remove(pipeline.consumer)
        pipeline.create()
        later = Pipeline(
            pipeline.cluster, pipeline.folder, query="query-2", digest=True, at=[begin, begin]
        )
        later.run(end - begin)

    return act


def _renamed(pipeline):
    """The queue got another path, where a consumer is at its first row."""
    pipeline.run(6)
    later = Pipeline(
        pipeline.cluster, pipeline.folder, query="query-2", queue_name="new_name", digest=True
    )
    later.client.unmount_table(pipeline.queue, sync=True)
    later.client.move(pipeline.queue, later.queue)
    later.client.mount_table(later.queue, sync=True)
    later.client.register_queue_consumer(later.queue, later.consumer, vital=True)
    later.run(6)


def _in_ledger(pipeline, **columns):
    (row,) = read_ledger(pipeline.connection, pipeline.ledger)
    pipeline.client.insert_rows(pipeline.ledger, [row.entry.to_row() | columns])


def _set_aside(pipeline):
    """A row is a dead letter, and nobody has looked whether that is still there."""
    source, rows = pipeline.next(6)
    pipeline.commit([source], rows[1:])
    _in_ledger(pipeline, total_rejected_rows=1)


def _half_written(pipeline):
    source, rows = pipeline.next(6)
    pipeline.commit([source], rows[:6])
    _in_ledger(pipeline, part=1, part_count=2)


def _trimmed(pipeline):
    pipeline.run(6)
    pipeline.client.trim_rows(pipeline.target, 0, 3)


def _job_beside(pipeline):
    """A batch job has filled in what the query has written, too."""
    pipeline.run(6)
    job = Pipeline(pipeline.cluster, pipeline.folder, query="application:backfill", digest=True)
    job.commit([], written(6))


AGREEING = {
    "one row lost and another twice": lambda made: _damaged(
        made, lambda rows: rows[0].update(rows[1])
    ),
    "a row of another query": lambda made: _damaged(made, lambda rows: rows[0].update(part=5)),
    "everything again, with a new checkpoint": _again(0, 6),
    "everything again, after the queue was renamed": _renamed,
    "overlapping ranges": _again(3, 8),
    "rows between two queries that none has read": _again(8, 10),
    "a value edited, and the queue trimmed": _edited_and_trimmed,
    "partitions swapped": lambda made: _damaged(made, _swapped),
    "a dead letter": _set_aside,
    "a batch that is half written": _half_written,
    "a trimmed target": _trimmed,
    "a job beside the query": _job_beside,
}


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("broken", AGREEING)
def test_what_agrees_although_rows_do_not_is_never_called_exact(cluster, tmp, broken):
    """Ledgers add up what each query has counted, whatever rows these were."""
    pipeline = digested(cluster, tmp)
    AGREEING[broken](pipeline)
    counted = audit(pipeline.target, by=By.COUNT, connection=pipeline.connection)
    assert (counted.rows, counted.verdict) == (counted.expected_rows, Verdict.UNPROVEN)
    assert not look(pipeline).exact
    with suppress(UnprovableError):
        assert not by_its_digest(pipeline).exact


def test_half_a_batch_lacks_no_row(cluster, tmp):
    """A query that runs writes the other half."""
    pipeline = digested(cluster, tmp)
    pipeline.run(4)
    _half_written(pipeline)
    found = look(pipeline)
    assert (found.verdict, found.newer, found.unknown) == (Verdict.UNPROVEN, 6, 0)


def _backfilled(cluster, tmp, job, stream):
    """A job has written rows that are in no queue, and a query reads on behind them."""
    pipeline = digested(cluster, tmp, at=[5, 5])
    rows = [{"part": None, "row": None, "value": number} for number in range(7)]
    filling = Pipeline(cluster, tmp, query="application:backfill", digest=True)
    filling.commit([], rows, job(rows))
    source, copied = pipeline.next(5)
    pipeline.commit([source], copied, stream(copied))
    return pipeline


def test_backfill_and_the_stream_behind_it_are_proven(cluster, tmp, told):
    """Both ways, once somebody has said that no row of the job is in the queue."""
    pipeline = _backfilled(cluster, tmp, list, list)
    for audited in (look, by_its_digest):
        assert audited(pipeline, backfill=True).verdict is Verdict.EXACT
        assert not audited(pipeline).exact
    assert (look(pipeline, backfill=True).job_rows, look(pipeline).unknown) == (7, 7)
    assert "say so: --backfill" in by_its_digest(pipeline).unproven[0]
    for how in ([], ["--by", "count"]):
        assert told("audit", pipeline.target, "--backfill", *how)[0] == 0
    assert told("audit", pipeline.target)[0] == 1


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize(
    ("job", "stream"),
    [
        (lambda rows: rows[1:], list),
        (lambda rows: [*rows, rows[0]], list),
        (lambda rows: [*rows[1:], {**rows[0], "value": 77}], list),
        (list, lambda rows: rows[1:]),
        (list, lambda rows: [*rows[1:], rows[1]]),
    ],
    ids=["job lost", "job repeated", "job changed", "stream lost", "stream lost and repeated"],
)
def test_one_wrong_row_of_a_backfill_or_of_the_stream_is_found(cluster, tmp, job, stream):
    """What somebody has said covers the origin of rows, and nothing else."""
    pipeline = _backfilled(cluster, tmp, job, stream)
    for audited in (look, by_its_digest):
        assert audited(pipeline, backfill=True).verdict is Verdict.WRONG


def test_waiting_dead_letters_are_not_called_lost(cluster, tmp):
    """So many rows may be missing, and not one more."""
    pipeline = digested(cluster, tmp)
    _set_aside(pipeline)
    found = look(pipeline)
    assert (found.partitions[0].lost, found.verdict) == (1, Verdict.UNPROVEN)
    assert "1 rows that the target cannot take" in found.unproven[0]
    source, rows = pipeline.next(6)
    pipeline.commit([source], rows, rows[1:])
    assert look(pipeline).verdict is Verdict.WRONG
