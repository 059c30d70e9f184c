"""The rows of a DataFrame in chunks, without Spark: all of them, in order, as Spark can hand them over."""

import sys
from collections import Counter
from itertools import accumulate, chain
from types import SimpleNamespace
from unittest.mock import patch

import pyarrow as pa
import pytest
import yt.yson
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.model.tasks import encoder_of
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.codec.schema import TableSchema, WritePlan
from yt_exactly_once.codec.weights import weight, weights
from yt_exactly_once.spark.compat.versions import arrow_batches, ended_batches
from yt_exactly_once.spark.doors import frame_rows
from yt_exactly_once.spark.doors.frame_rows import collected
from yt_exactly_once.spark.schema import with_nullable_members
from yt_exactly_once.spark.sink import encode
from yt_exactly_once.spark.sink.columns import PARTITION_COLUMN
from yt_exactly_once.spark.sink.encode import chunks, encode_batches, merged, numbered_by_ends
from yt_exactly_once.spark.sink.placement import TABLET_COLUMN, Placement
from yt_exactly_once.spark.sink.target import BY_PARTITION, ROUND_ROBIN


def batches_of(sizes, partition=0, first=0):
    """Return batches of Arrow with ascending numbers."""
    batches = []
    for size in sizes:
        numbers = pa.array(range(first, first + size), pa.int64())
        places = pa.array([partition] * size, pa.int32())
        batches.append(pa.record_batch({"id": numbers, PARTITION_COLUMN: places}))
        first += size
    return batches


def ids(batch):
    return batch.column("id").to_pylist()


@given(sizes=st.lists(st.integers(0, 7), max_size=6), size=st.integers(1, 9))
def test_chunks_are_full_and_keep_every_row_in_its_place(sizes, size):
    """Only the last one may be shorter; none is empty."""
    cut = list(chunks(batches_of(sizes), size))
    assert [number for chunk in cut for number in ids(chunk)] == list(range(sum(sizes)))
    assert all(chunk.num_rows == size for chunk in cut[:-1])
    assert all(0 < chunk.num_rows <= size for chunk in cut)


@given(sizes=st.lists(st.integers(0, 7), max_size=6), rows=st.integers(1, 9))
def test_chunks_are_full_with_so_many_bytes_too(sizes, rows):
    """Rows of a megabyte come by the dozen, and one that is larger than a request comes alone."""
    row_bytes = batches_of([1])[0].nbytes
    for limit, expected in ((rows * row_bytes, rows), (row_bytes - 1, 1)):
        with patch.object(encode, "REQUEST_BYTES", limit):
            cut = list(chunks(batches_of(sizes), 1000))
        assert [number for chunk in cut for number in ids(chunk)] == list(range(sum(sizes)))
        assert all(chunk.num_rows == expected for chunk in cut[:-1])
        assert all(0 < chunk.num_rows <= expected for chunk in cut)


TYPES = {
    "id": (pa.int64(), "int64"),
    "flag": (pa.bool_(), "bool"),
    "text": (pa.string(), "utf8"),
    "many": (pa.list_(pa.string()), {"type_name": "list", "item": "utf8"}),
    "pairs": (
        pa.map_(pa.string(), pa.int64()),
        {"type_name": "dict", "key": "utf8", "value": "int64"},
    ),
    "record": (
        pa.struct({"flag": pa.bool_(), "texts": pa.list_(pa.string())}),
        {
            "type_name": "struct",
            "members": [
                {"name": "flag", "type": "bool"},
                {"name": "texts", "type": {"type_name": "list", "item": "utf8"}},
            ],
        },
    ),
}
"""Of columns that may be null: in Spark's Arrow and in the table."""

TEXTS = st.sampled_from(["", "a", "b" * 20, "c" * 90])
VALUES = {
    "id": st.integers(0, 9),
    "flag": st.booleans(),
    "text": TEXTS,
    "many": st.lists(TEXTS, max_size=3),
    "pairs": st.dictionaries(TEXTS, st.integers(0, 9), max_size=2),
    "record": st.fixed_dictionaries({"flag": st.booleans(), "texts": st.lists(TEXTS, max_size=2)}),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}),
    max_size=20,
)
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in TYPES.items()])
PLAN = WritePlan(
    "//t",
    TableSchema.from_yt([
        {"name": name, "type_v3": {"type_name": "optional", "item": kind}}
        for name, (_, kind) in TYPES.items()
    ]).columns,
)  # fmt: skip


def cut(rows, most):
    """Return the rows of a Spark partition in batches of so many, with nothing left of the others."""
    return [
        pa.RecordBatch.from_pylist(rows[start : start + most], SCHEMA)
        for start in range(0, len(rows), most)
    ]


@given(rows=ROWS)
def test_weight_of_rows_is_the_sum_of_their_own(rows):
    """Whatever they are nested in, and wherever their batch is a part of another one."""
    whole = pa.RecordBatch.from_pylist(rows, SCHEMA)
    alone = [weight(each) for each in cut(rows, 1)]
    assert [weight(whole.slice(place, 1)) for place in range(len(rows))] == alone
    assert list(weights(whole)) == list(accumulate(alone))
    assert weight(whole) == sum(alone)


@given(
    partitions=st.lists(ROWS, min_size=1, max_size=3),
    most=st.integers(1, 25),
    size=st.integers(1, 25),
    room=st.integers(1, 25),
    room_bytes=st.sampled_from([10, 100, 300, 1_000, 10_000]),
    tablets=st.sampled_from([None, 1, 2]),
    wire=st.sampled_from(WireFormat),
    options=st.sampled_from([{}, {"unique_keys": True}]),
    rule=st.sampled_from([BY_PARTITION, ROUND_ROBIN]),
)
def test_requests_are_the_same_whatever_batches_rows_come_in(
    partitions, most, size, room, room_bytes, tablets, wire, options, rule
):
    """To the byte: another sink of the function, or a setting, may change the batches of a replay."""

    def payloads(most):
        placement = Placement(tablets, rule if tablets else BY_PARTITION)
        encoder = encoder_of(PLAN, wire, placement, dyn_batch_size=size, **options)
        batches = []
        for partition, rows in enumerate(partitions):
            first = 0
            for batch in cut(rows, most):
                count = batch.num_rows
                places = [place % (tablets or 1) for place in range(first, first + count)]
                placed = batch.append_column(TABLET_COLUMN, pa.array(places, pa.int64()))
                numbers = pa.array([partition] * count, pa.int32())
                batches.append(placed.append_column(PARTITION_COLUMN, numbers))
                first += count
        with patch.multiple(encode, SMALL_BATCH=room, REQUEST_BYTES=room_bytes):
            encode_batches(batches, encoder)
        return {
            group: [bytes(payload.data) for payload in held]
            for group, held in encoder.groups.items()
        }

    assert payloads(most) == payloads(1_000)


def test_one_batch_is_not_copied():
    """Rows that Spark sends in one piece may be as many as memory takes."""
    (batch,) = batches_of([3])
    assert merged([batch]) is batch
    # Partitions without rows, and a DataFrame without partitions.
    empty = batch.slice(0, 0)
    assert merged([empty, empty]) == merged([], batch.schema) == empty


class Encoder:
    """Keeps what it is given."""

    def __init__(self, *, size, is_ordered):
        self.target = SimpleNamespace(
            placement=Placement(None), dyn_batch_size=size, orders_keys=is_ordered
        )
        self.added = []
        self.groups = {}

    def add(self, rows, partition, *, is_mixed=False):
        """Keep a chunk."""
        self.added.append((ids(rows), partition, is_mixed))


class Frame:
    """A DataFrame whose schema and rows are known; it notes what it is asked to select."""

    def __init__(self, schema=None, batches=()):
        self.schema = schema or StructType().add("id", LongType())
        self.batches = batches
        self.selected = None
        self.numbered = False

    def withColumn(self, _name, _column):  # noqa: N802 - Spark's name
        """Its rows have the column already."""
        self.numbered = True
        return self

    def toDF(self, *_names):  # noqa: N802 - Spark's name
        return self

    def select(self, *columns):
        self.selected = columns
        return self

    def _collect_as_arrow(self):
        """Return the rows."""
        return list(self.batches)


def encoded(frame, *, size, is_ordered=False, needs_partitions=True):
    encoder = Encoder(size=size, is_ordered=is_ordered)
    functions = SimpleNamespace(spark_partition_id=lambda: None, col=Column)
    with patch.object(frame_rows, "sf", functions):
        arrived = collected(frame, needs_partitions=needs_partitions)
    encode_batches(arrived, encoder, is_placed=needs_partitions)
    return encoder.added


class Column:
    """A column of Spark: what it is, what it is cast to, and its name."""

    def __init__(self, source, kind=None, name=None):
        self.told = source, kind, name

    def cast(self, kind):
        return Column(self.told[0], kind, self.told[2])

    def alias(self, name):
        return Column(*self.told[:2], name)


class ConnectFrame:
    """A DataFrame of Spark Connect, which takes every other name for a column."""

    def __init__(self, table):
        self.table = table

    def __getattr__(self, name):
        return Column(name)

    def toArrow(self):  # noqa: N802 - Spark's name
        return self.table


def test_rows_of_connect_come_by_its_public_method():
    """Its DataFrame has no private one, and does not say so."""
    batches = batches_of([2, 1], partition=0)
    frame = ConnectFrame(pa.Table.from_batches(batches))
    assert arrow_batches(frame) == batches


class Conf:
    """The settings of a session; perhaps somebody changes one while rows are computed."""

    def __init__(self, value):
        self.value = value

    def get(self, _name):
        return self.value

    def set(self, _name, value):
        self.value = str(value)


@pytest.mark.parametrize(
    ("given", "sizes", "meanwhile", "full", "left"),
    [
        ("100", [99, 1], None, 99, "100"),
        ("40", [40, 1], None, 40, "40"),
        ("0", [40], None, sys.maxsize, "0"),
        ("100", [99], "50", None, "50"),
        ("100", [100], None, None, "100"),
    ],
)
def test_session_is_left_as_it_was(given, sizes, meanwhile, full, left):
    """Its batches are of other than round numbers while the rows come; or nobody knows which were full."""
    conf = Conf(given)
    frame = Frame(batches=batches_of(sizes))
    frame.sparkSession = SimpleNamespace(conf=conf)
    collect = frame._collect_as_arrow

    class Watched(Frame):
        def _collect_as_arrow(self):
            conf.value = meanwhile or conf.value
            return collect()

    frame.__class__ = Watched
    batches, found = ended_batches(frame)
    assert ([batch.num_rows for batch in batches], found, conf.value) == (sizes, full, left)


def test_session_is_left_as_it_was_by_a_job_that_fails():
    """Its error is the one that is raised."""
    frame = Frame(batches=None)
    frame.sparkSession = SimpleNamespace(conf=Conf("100"))
    with pytest.raises(TypeError):
        ended_batches(frame)
    assert frame.sparkSession.conf.value == "100"


TWO_PARTITIONS = [*batches_of([2, 1], partition=4), *batches_of([2], partition=6, first=3)]


@pytest.mark.parametrize(
    ("size", "is_ordered", "expected"),
    [
        (5, False, [([0, 1, 2, 3, 4], 4, True)]),
        (5, True, [([0, 1, 2], 4, False), ([3, 4], 6, False)]),
        (4, False, [([0, 1, 2], 4, False), ([3, 4], 6, False)]),
        (2, True, [([0, 1], 4, False), ([2], 4, False), ([3, 4], 6, False)]),
        (2, False, [([0, 1], 4, False), ([2], 4, False), ([3, 4], 6, False)]),
    ],
    ids=["small", "small, in order", "large", "chunks, in order", "chunks"],
)
def test_rows_of_two_partitions_meet_in_one_chunk_only_if_few_and_in_any_order(
    size, is_ordered, expected
):
    """One request then carries them; else each partition has chunks of its own."""
    frame = Frame(batches=TWO_PARTITIONS)
    assert encoded(frame, size=size, is_ordered=is_ordered) == expected


@given(
    partitions=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), max_size=9),
    tablets=st.one_of(st.none(), st.integers(1, 7)),
    rule=st.sampled_from([BY_PARTITION, ROUND_ROBIN]),
    size=st.integers(1, 25),
    room=st.integers(1, 25),
    room_bytes=st.sampled_from([encode.REQUEST_BYTES, 25 * 20, 1]),
)
def test_requests_grow_with_the_rows_and_every_tablet_keeps_to_one_group(
    partitions, tablets, rule, size, room, room_bytes
):
    """And not with tablets times partitions. The rows of a partition keep their order in each tablet."""
    batches, first = [[] for _ in partitions], 0
    for partition, sizes in enumerate(partitions):
        for batch in batches_of(sizes, partition, first):
            places = [number * 3 % (tablets or 1) for number in ids(batch)]
            column = pa.array(places, pa.int64())
            batches[partition].append(batch.append_column(TABLET_COLUMN, column))
        first += sum(sizes)
    columns = [{"name": name, "type": "int64"} for name in ("id", PARTITION_COLUMN)]
    plan = WritePlan("//t", TableSchema.from_yt(columns).columns)
    placement = Placement(tablets, rule if tablets else BY_PARTITION)
    encoder = encoder_of(plan, WireFormat.YSON, placement, dyn_batch_size=size)
    with patch.multiple(encode, SMALL_BATCH=room, REQUEST_BYTES=room_bytes):
        encode.encode_batches(chain.from_iterable(batches), encoder)
    groups, order, counts = {}, {}, Counter()
    for group, payloads in encoder.groups.items():
        for payload in payloads:
            assert payload.row_count <= size
            for row in yt.yson.loads(payload.data, yson_type="list_fragment"):
                tablet = row.get("$tablet_index")
                place = row[PARTITION_COLUMN] if tablets is None else tablet
                assert groups.setdefault(place, group) == group
                order.setdefault((place, row[PARTITION_COLUMN]), []).append(row["id"])
                counts[tablet] += 1
    assert sorted(number for found in order.values() for number in found) == list(range(first))
    assert all(found == sorted(found) for found in order.values())
    assert encoder.rows_by_tablet == counts
    requests = sum(map(len, encoder.groups.values()))
    row_bytes = 20  # two numbers and a partition
    size = min(size, max(1, room_bytes // row_bytes))
    assert requests <= 1 + 2 * first / min(room, size) + 2 * first / size


def test_spark_is_not_asked_for_partitions_that_do_not_matter():
    """Another column costs it an analysis of its own."""
    frame = Frame(batches=TWO_PARTITIONS)
    expected = [([0, 1], 0, False), ([2, 3], 0, False), ([4], 0, False)]
    assert encoded(frame, size=2, needs_partitions=False) == expected
    assert not frame.numbered


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([3, 3, 1, 2, 3, 1], [0, 0, 0, 1, 2, 2]), ([1, 0, 1], [0, 1, 1]), ([3, 3], [0, 0])],
)
def test_batch_that_is_not_full_ends_a_partition(sizes, expected):
    """After a full one it may go on; a batch without rows says nothing."""
    batches = [batch.select(["id"]) for batch in batches_of(sizes)]
    numbers = [batch[PARTITION_COLUMN].to_pylist() for batch in numbered_by_ends(batches, 3)]
    assert numbers == [[each] * size for each, size in zip(expected, sizes, strict=True)]


@pytest.mark.parametrize("needs_partitions", [False, True])
@pytest.mark.parametrize("sizes", [[], [0], [0, 0]])
def test_dataframe_without_rows_gives_no_chunk(sizes, needs_partitions):
    """Whatever batches Spark makes of it."""
    frame = Frame(batches=batches_of(sizes))
    assert encoded(frame, size=5, needs_partitions=needs_partitions) == []


def test_batch_of_one_partition_is_not_mixed():
    """Its rows need no tablet each."""
    frame = Frame(batches=batches_of([0, 2], partition=4))
    assert encoded(frame, size=5) == [([0, 1], 4, False)]


def test_only_columns_whose_members_must_not_be_null_are_cast():
    """Where the struct is null, Spark could not hand its members over; a cast of others costs time."""
    strict = StructType([StructField("a", StringType(), nullable=False)])
    frame = Frame(StructType().add("id", LongType()).add("Id", strict))
    encoded(frame, size=5)
    assert [column.told for column in frame.selected] == [
        ("c0", None, "id"),
        ("c1", with_nullable_members(strict), "Id"),
    ]


def test_dataframe_without_such_columns_stays_as_it_is():
    """Every step costs Spark an analysis of its own."""
    frame = Frame()
    encoded(frame, size=5)
    assert frame.selected is None
