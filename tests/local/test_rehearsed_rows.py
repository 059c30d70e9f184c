"""What a rehearsal may call the same rows, without Spark: what it says must hold in the target."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests.fan_out import Given, connect, deliver, rows_of
from tests.flows import PARTITION_COLUMN, ROW_COLUMN, columns, create_table
from yt_exactly_once import Changes, SinkOptions, Target
from yt_exactly_once.codec.row_hash import added, row_hashes
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.codec.schema import TableSchema
from yt_exactly_once.commit.batch import PartitionRange, SourceRange
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.tally import RowDigest, Tally
from yt_exactly_once.spark.sink.targets import prepare_table
from yt_exactly_once.testing.capture import rehearsed as rehearsed_target
from yt_exactly_once.testing.comparison import PastBatch, compared, left_out, with_letters
from yt_exactly_once.testing.rehearsal import Judgement
from yt_exactly_once.ytsaurus.tables import describe_table

SOURCE = {PARTITION_COLUMN: "int64", ROW_COLUMN: "int64"}
RANGES = (SourceRange("", "//q", None, (PartitionRange(0, 0, 2),)),)


def entry(rows, rejected=0, target="//t", digest=None):
    tally = Tally(rows=rows, rejected_rows=rejected, digest=digest)
    return LedgerEntry("query", target, 1, "run", "tx", {}, tallies={target: tally})


@pytest.fixture
def rehearsed(cluster, client, tmp):
    """Compare new rows with those of a target."""

    def compare(kinds, there, new, *, keys=(), sums=(), old=None, **options):
        schema = [
            one | ({"aggregate": "sum"} if one["name"] in sums else {})
            for one in columns(kinds, keys)
        ]
        path = create_table(client, f"{tmp}/target", schema)
        client.insert_rows(path, there)
        connection = connect(cluster.proxy_urls[0])
        target, sink = Target(path, **options), SinkOptions(path, proxy=cluster.proxy_urls[0])
        rows = pa.RecordBatch.from_pylist(new)
        info = describe_table(connection, path)
        prepared = prepare_table(connection, info, target, rows.schema, sink, wire=WireFormat.YSON)
        return compared(connection, PastBatch(1, RANGES, old, True), prepared, rows)

    return compare


@pytest.mark.parametrize(("city", "judgement"), [("Riga", Judgement.OTHER), (None, Judgement.SAME)])
def test_column_that_the_new_code_leaves_out_counts(rehearsed, city, judgement):
    """It would be null, where the old code has written a value."""
    rows = [{PARTITION_COLUMN: 0, ROW_COLUMN: number, "id": number} for number in range(2)]
    there = [{**row, "city": city} for row in rows]
    found = rehearsed({**SOURCE, "id": "int64", "city": "utf8?"}, there, rows)
    assert found.judgement is judgement, str(found)
    assert len(found.examples) == (2 if city else 0)


def test_column_that_an_update_keeps_does_not_count(rehearsed):
    """Whoever has written it."""
    kinds, there = {"k": "int64", "v": "int64?", "w": "int64?"}, [{"k": 1, "v": 1, "w": 1}]
    new = [{"k": 1, "v": 1}]
    found = rehearsed(kinds, there, new, keys=["k"], old=entry(1), update_columns=True)
    assert (found.judgement, found.only_new) == (Judgement.UNPROVEN, 0)


def test_rows_of_a_sorted_target_prove_nothing_if_an_earlier_batch_may_have_written_them(rehearsed):
    """The old code has written key 2 in this batch. The new one writes key 1, as a batch before has."""
    there = [{"k": 1, "v": 1}, {"k": 2, "v": 2}]
    found = rehearsed({"k": "int64", "v": "int64?"}, there, there[:1], keys=["k"], old=entry(1))
    assert found.judgement is Judgement.UNPROVEN
    assert "digest=True" in found.reason


ONE_KEY = [{"k": 1, "v": 1}, {"k": 1, "v": 2}]


@pytest.mark.parametrize(
    ("new", "options", "replaced", "judgement"),
    [
        (ONE_KEY[:1], {}, False, Judgement.SAME),
        (ONE_KEY[:1], {"write": "replace"}, True, Judgement.SAME),
        (ONE_KEY[:1], {}, True, Judgement.UNPROVEN),
        (ONE_KEY[:1], {"write": "replace"}, False, Judgement.UNPROVEN),
        (ONE_KEY[:1], {"aggregate": True}, False, Judgement.UNPROVEN),
        (ONE_KEY[:1], {"update_columns": True}, False, Judgement.UNPROVEN),
        (ONE_KEY[::-1], {}, False, Judgement.UNPROVEN),
    ],
)
def test_same_rows_prove_nothing_where_they_may_leave_others_in_the_table(
    rehearsed, new, options, replaced, judgement
):
    """What a row does to its key, and which row of a key comes last, is in no digest."""
    kinds = {"k": "int64", "v": "int64?"}
    table = TableSchema.from_yt(columns(kinds, ["k"]))
    batch = added(0, row_hashes(pa.RecordBatch.from_pylist(new[::-1]), table.columns))
    old = entry(len(new), digest=RowDigest(batch, replaces=replaced))
    found = rehearsed(kinds, ONE_KEY[:1], new, keys=["k"], sums=["v"], old=old, **options)
    assert found.judgement is judgement, str(found)


def test_target_that_the_new_code_leaves_out_is_named(cluster, client, tmp):
    """Of the ledger, which knows the newest batch, and of the history, which knows the others."""
    proxy, connection = cluster.proxy_urls[0], connect(cluster.proxy_urls[0])
    kept, gone = (
        create_table(client, f"{tmp}/{name}", columns({"shop": "utf8?", "id": "int64?"}))
        for name in ("kept", "gone")
    )
    options = {"proxy": proxy, "history_path": f"{tmp}/history"}
    for number in range(2):
        rows = Given(rows_of(["a"] * (number + 1)))
        deliver([kept, gone], rows, number, run=f"run {number}", **options)

    def found(batch, written, **more):
        sink = SinkOptions([kept, gone], **{**options, **more})
        some = left_out(connection, sink, "query", batch, written)
        return [(one.target, one.judgement, one.old_rows) for one in some]

    assert found(1, [kept]) == [(gone, Judgement.OTHER, 2)]
    assert found(0, [kept]) == [(gone, Judgement.OTHER, 1)]
    assert found(0, [kept], history_path=None) == [(gone, Judgement.UNPROVEN, None)]
    assert found(1, [kept, gone]) == found(2, []) == []


@pytest.mark.parametrize(
    ("before", "now", "judgement"),
    [(0, 0, Judgement.SAME), (2, 2, Judgement.UNPROVEN), (2, 0, Judgement.OTHER), (0, 1, Judgement.OTHER)],
)  # fmt: skip
def test_dead_letters_are_counted(rehearsed, before, now, judgement):
    """Rows that were set aside are rows too."""
    rows = [{PARTITION_COLUMN: 0, ROW_COLUMN: 0, "id": 1}]
    found = rehearsed({**SOURCE, "id": "int64"}, rows, rows)
    past = PastBatch(1, RANGES, entry(1, before), True)
    assert with_letters(found, past, now).judgement is judgement


@pytest.mark.parametrize(("written", "judgement"), [(1, Judgement.SAME), (2, Judgement.OTHER)])
def test_rows_without_a_source_are_rows_that_the_old_code_has_written(
    rehearsed, written, judgement
):
    """They cannot be told from those of other batches, and the ledger has counted them."""
    rows = [{PARTITION_COLUMN: 0, ROW_COLUMN: 0, "id": 1}]
    there = [*rows, {PARTITION_COLUMN: None, ROW_COLUMN: None, "id": 2}]
    kinds = {PARTITION_COLUMN: "int64?", ROW_COLUMN: "int64?", "id": "int64"}
    assert rehearsed(kinds, there, rows, old=entry(written)).judgement is judgement


@pytest.mark.parametrize(
    ("options", "name", "judgement"),
    [
        ({"delete_marker": "gone"}, "t", Judgement.UNPROVEN),
        ({"changes": Changes(sequence="id")}, "t", Judgement.UNPROVEN),
        ({}, "{shop}", Judgement.UNPROVEN),
        ({}, "{id}", Judgement.OTHER),
    ],
)
def test_rows_are_counted_as_the_ledger_counts_them(cluster, tmp, options, name, judgement):
    """Of 3 rows 2 have one key, and one names no table."""
    target = Target(f"{tmp}/{name}", **options)
    sink = SinkOptions(target, proxy=cluster.proxy_urls[0])
    past = PastBatch(1, RANGES, entry(2, 1 if name == "{shop}" else 0, target.path), True)
    rows = SimpleNamespace(frame_for=lambda _: SimpleNamespace(count=lambda: 3))
    found = rehearsed_target(connect(cluster.proxy_urls[0]), sink, target, past, rows)
    assert found.judgement is judgement, str(found)
