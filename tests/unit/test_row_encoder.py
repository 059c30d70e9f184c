"""Rows of one chunk as payloads, without Spark: whatever is rejected, and whoever places the rest."""

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
import yt.yson

from tests.flows import columns
from tests.model.tasks import encoder_of, prepared_target
from yt_exactly_once import Target, TransactionalSink
from yt_exactly_once.codec.rejects import Rejects
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.codec.schema import (
    RESERVED_PREFIX,
    SOURCE_QUEUE_COLUMN,
    SOURCE_ROW_COLUMN,
    SOURCE_TABLET_COLUMN,
    TableSchema,
    check_frame,
    is_reserved,
    require_no_reserved,
)
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.errors import EncodingError, SchemaMismatchError
from yt_exactly_once.spark.modes.mode import TargetBatch
from yt_exactly_once.spark.sink.columns import PARTITION_COLUMN, sent
from yt_exactly_once.spark.sink.placement import TABLET_COLUMN, Placement
from yt_exactly_once.spark.sink.target import BY_PARTITION, PRESERVE, ROUND_ROBIN

TABLETS = 3
REJECTS = Rejects("//rejects", "query", 7)
RULES = [BY_PARTITION, PRESERVE, ROUND_ROBIN, ("id",)]
CHANGES = [{}, {"delete_marker": "gone"}, {"unique_keys": True}]


def planned(*, keyed):
    table = TableSchema.from_yt(columns({"id": "int64", "v": "uint8"}, ["id"] * keyed))
    frame = pa.schema([("id", pa.int64()), ("v", pa.int16())])
    return check_frame(frame, table, target="//t", sorted=keyed)


def chunk(values):
    """Return rows as the encoder gets them: with the columns that the sink has added."""
    count = len(values)
    numbers = pa.array(range(count), pa.int64())
    return pa.RecordBatch.from_pydict({
        "id": numbers,
        "v": pa.array(values, pa.int16()),
        "gone": pa.array([False] * count, pa.bool_()),
        SOURCE_TABLET_COLUMN: pa.array([1] * count, pa.int64()),
        TABLET_COLUMN: pa.array([number % TABLETS for number in range(count)], pa.int64()),
        PARTITION_COLUMN: pa.array([0] * count, pa.int32()),
    })  # fmt: skip


def fragment(data):
    return list(yt.yson.loads(data, yson_type="list_fragment"))


def rows(payload):
    return fragment(payload.data)


@pytest.mark.parametrize("wire", list(WireFormat))
@pytest.mark.parametrize(
    ("rule", "changes"), [*itertools.product(RULES, [{}]), *((None, more) for more in CHANGES)]
)
@pytest.mark.parametrize("values", [[-1, 300, -2], []], ids=["all rejected", "no rows"])
def test_chunk_of_which_nothing_is_left_is_encoded(rule, changes, values, wire):
    """Every replay would meet the same chunk, so an error would stop the query for ever."""
    is_sorted = rule is None
    placement = Placement(None) if is_sorted else Placement(TABLETS, rule)
    for is_mixed in (False, True):
        encoder = encoder_of(planned(keyed=is_sorted), wire, placement, rejects=REJECTS, **changes)
        encoder.add(chunk(values), 0, is_mixed=is_mixed)
        assert not encoder.groups
        assert not encoder.rows_by_tablet
        rejected = [row for payload in encoder.rejected for row in rows(payload)]
        assert len(rejected) == len(values)


@pytest.mark.parametrize(
    ("tablet", "shown"),
    [
        (2, "queue partition 2,"),
        (-1, "queue partition -1"),
        (2**32, "4294967296"),
        (None, "from no"),
    ],
)
def test_row_of_a_tablet_that_is_not_there_is_refused(tablet, shown):
    """Also where the rest of its chunk is rejected."""
    encoder = encoder_of(
        planned(keyed=False), WireFormat.YSON, Placement(2, PRESERVE), rejects=REJECTS
    )
    rows_given = chunk([-1, -1, 0])
    place = rows_given.schema.get_field_index(TABLET_COLUMN)
    given = rows_given.set_column(place, TABLET_COLUMN, pa.array([0, 1, tablet], pa.int64()))
    with pytest.raises(EncodingError, match=f"{shown}.* and the target has 2 tablets"):
        encoder.add(given, 0)
    assert not encoder.groups
    assert not encoder.rejected


@pytest.mark.parametrize(
    ("placement", "changes", "expected"),
    [
        (Placement(1), {}, False),
        (Placement(1, ROUND_ROBIN), {}, False),
        (Placement(2), {}, True),
        (Placement(None), {}, True),
        (Placement(1), {"delete_marker": "gone"}, True),
        (Placement(1), {"unique_keys": True}, True),
    ],
)
def test_partitions_matter_unless_all_rows_go_to_one_tablet(placement, changes, expected):
    """Where keys choose the tablets, each partition is sent by itself and so keeps its order."""
    options = Target("//t", **changes)
    target = replace(prepared_target("//t", is_sorted=False), placement=placement, options=options)
    assert target.needs_partitions is expected


@pytest.mark.parametrize("wire", list(WireFormat))
@pytest.mark.parametrize("changes", CHANGES, ids=["rows", "marker", "keys"])
def test_null_in_a_key_names_the_row_by_its_source(changes, wire):
    """Its queue, partition and index, also where keys are encoded apart from the rows."""
    encoder = encoder_of(planned(keyed=True), wire, Placement(None), **changes)
    rows_given = chunk([1, 2, 3])
    given = rows_given.set_column(0, "id", pa.array([1, None, 3], pa.int64()))
    given = given.append_column(SOURCE_ROW_COLUMN, pa.array([70, 71, 72]))
    given = given.append_column(SOURCE_QUEUE_COLUMN, pa.array(["//queue"] * 3))
    with pytest.raises(EncodingError, match=r"column id.*it is null") as caught:
        encoder.add(given, 0)
    named = {"source_queue": "//queue", "source_partition": 1, "source_row": 71}
    assert named.items() <= caught.value.where.items()


@pytest.mark.parametrize(
    ("other", "is_renamed"), [("other", False), ("a.b", True), ("ID", True), ("größe", True)]
)
@pytest.mark.parametrize("mode", ["at-least-once", "idempotent"])
def test_tasks_get_the_columns_that_name_a_row(mode, other, is_renamed):
    """Beside those of the table; the others stay behind. Spark cannot find every name as it is."""

    class Frame:
        taken = renamed = ()

        def toDF(self, *names):  # noqa: N802 - Spark's name
            self.renamed = names
            return self

        def select(self, *names):
            self.taken = names
            return self

    sink = TransactionalSink("//t", proxy="localhost:1", mode=mode)
    target = SimpleNamespace(plan=planned(keyed=True), dyn_batch_size=1, placement=Placement(None))
    columns = (other, "id", SOURCE_QUEUE_COLUMN, SOURCE_TABLET_COLUMN, SOURCE_ROW_COLUMN)
    given = TargetBatch(MicroBatch("query", 0, "run"), target, columns, {})
    names = sink._engine.mode.settings(given, target).names
    assert names == columns[1:]
    frame = sent(Frame(), columns, names)
    plain = ("c0", "c1", "c2", "c3", "c4")
    assert frame.renamed == (plain if is_renamed else ())
    assert frame.taken == (plain if is_renamed else columns)[1:]


def test_service_columns_of_another_kind_say_nothing_about_a_rejected_row():
    """A user may have made them; on every replay they would be in the way."""
    encoder = encoder_of(planned(keyed=False), WireFormat.YSON, Placement(1), rejects=REJECTS)
    given = chunk([-1]).append_column(SOURCE_ROW_COLUMN, pa.array(["first"]))
    encoder.add(given, 0)
    (row,) = rows(encoder.rejected[0])
    assert (row["source_partition"], row["source_row"]) == (None, None)
    assert json.loads(row["row"])[SOURCE_ROW_COLUMN] == "first"


def test_rejected_row_tells_the_columns_of_the_user_alone():
    """The columns that the sink adds say nothing about the row."""
    encoder = encoder_of(
        planned(keyed=False), WireFormat.YSON, Placement(TABLETS, ROUND_ROBIN), rejects=REJECTS
    )
    encoder.add(chunk([-1, 0]), 0, is_mixed=True)
    assert encoder.rows_by_tablet == {1: 1}
    assert json.loads(rows(encoder.rejected[0])[0]["row"]) == {
        "id": 0, "v": -1, "gone": False, SOURCE_TABLET_COLUMN: 1,
    }  # fmt: skip


def test_every_column_that_the_sink_adds_is_reserved():
    """The user's own column of that name would be overwritten."""
    for name in (PARTITION_COLUMN, TABLET_COLUMN):
        assert name.startswith(RESERVED_PREFIX)
        assert is_reserved(name.upper())


def test_dataframe_with_reserved_names_is_refused():
    """The error names every such column, as it is spelt."""
    names = ["id", "__YT_Exactly_Once_x", f"{RESERVED_PREFIX}y", SOURCE_TABLET_COLUMN]
    with pytest.raises(SchemaMismatchError) as caught:
        require_no_reserved(names, "//t")
    assert "reserved names: __YT_Exactly_Once_x, __yt_exactly_once_y [target=//t]" in str(
        caught.value
    )
    require_no_reserved(["id", "x__yt_exactly_once_"], "//t")


@pytest.mark.parametrize("changes", CHANGES)
def test_driver_knows_the_keys_of_a_chunk_only_where_it_must(changes):
    """Deleting and replacing compare them, by Spark partition; upserting costs nothing more."""
    encoder = encoder_of(planned(keyed=True), WireFormat.YSON, Placement(None), **changes)
    encoder.add(chunk([5, 6]), 4)
    found = {
        partition: [fragment(key) for part in parts for key in part.to_pylist()]
        for partition, parts in encoder.keys.items()
    }
    assert found == ({4: [[{"id": 0}], [{"id": 1}]]} if changes else {})


def test_deleted_rows_leave_before_those_that_are_written():
    """In a group of their partition, counted as rows, and without what only written rows have."""
    encoder = encoder_of(
        planned(keyed=True), WireFormat.YSON, Placement(None), delete_marker="gone"
    )
    given = chunk([5, 6, 7])
    place = given.schema.get_field_index("gone")
    encoder.add(given.set_column(place, "gone", pa.array([False, True, False])), 4)
    deleted, written = encoder.groups[4]
    assert (deleted.deletes, deleted.row_count, rows(deleted)) == (True, 1, [{"id": 1}])
    assert (written.deletes, written.row_count) == (False, 2)
    assert rows(written) == [{"id": 0, "v": 5}, {"id": 2, "v": 7}]
    assert encoder.rows_by_tablet == {None: 3}
