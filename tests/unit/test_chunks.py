"""The rows of a DataFrame in chunks, without Spark: all of them, in order, as Spark can hand them over."""

from types import SimpleNamespace
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from yt_exactly_once.spark.schema import with_nullable_members
from yt_exactly_once.spark.sink import encode
from yt_exactly_once.spark.sink.encode import PARTITION_COLUMN, chunks, encode_frame, merged


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


def test_one_batch_is_not_copied():
    """Rows that Spark sends in one piece may be as many as memory takes."""
    (batch,) = batches_of([3])
    assert merged([batch]) is batch


class Encoder:
    """Keeps what it is given.

    Args:
        order_matters: see `RowEncoder.order_matters`.
    """

    def __init__(self, *, order_matters=False):
        self.order_matters = order_matters
        self.added = []

    def add(self, rows, partition, *, is_mixed=False):
        """Keep a chunk."""
        self.added.append((ids(rows), partition, is_mixed))


class Frame:
    """A DataFrame whose schema and rows are known; it notes what it is asked to select."""

    def __init__(self, schema=None, batches=()):
        self.schema = schema or StructType().add("id", LongType())
        self.batches = batches
        self.selected = None

    def withColumn(self, _name, _column):  # noqa: N802 - Spark's name
        """Its rows have the column already."""
        return self

    def toDF(self, *_names):  # noqa: N802 - Spark's name
        """Rename the columns."""
        return self

    def select(self, *columns):
        """Note the columns."""
        self.selected = columns
        return self

    def _collect_as_arrow(self):
        """Return the rows."""
        return self.batches


def encoded(frame, *, size, order_matters=False):
    encoder = Encoder(order_matters=order_matters)
    functions = SimpleNamespace(spark_partition_id=lambda: None, col=Column)
    with patch.object(encode, "sf", functions):
        encode_frame(frame, encoder, dyn_batch_size=size)
    return encoder.added


class Column:
    """A column of Spark: what it is, what it is cast to, and its name."""

    def __init__(self, source, kind=None, name=None):
        self.told = source, kind, name

    def cast(self, kind):
        """See `Column.cast`."""
        return Column(self.told[0], kind, self.told[2])

    def alias(self, name):
        """See `Column.alias`."""
        return Column(*self.told[:2], name)


TWO_PARTITIONS = [*batches_of([2, 1], partition=4), *batches_of([2], partition=6, first=3)]


@pytest.mark.parametrize(
    ("size", "order_matters", "expected"),
    [
        (5, False, [([0, 1, 2, 3, 4], 4, True)]),
        (5, True, [([0, 1, 2], 4, False), ([3, 4], 6, False)]),
        (4, False, [([0, 1, 2], 4, False), ([3, 4], 6, False)]),
        (2, False, [([0, 1], 4, False), ([2], 4, False), ([3, 4], 6, False)]),
    ],
    ids=["small", "small, in order", "large", "chunks"],
)
def test_rows_of_two_partitions_meet_in_one_chunk_only_if_few_and_in_any_order(
    size, order_matters, expected
):
    """One request then carries them; else each partition has chunks of its own."""
    frame = Frame(batches=TWO_PARTITIONS)
    assert encoded(frame, size=size, order_matters=order_matters) == expected


@pytest.mark.parametrize("sizes", [[], [0], [0, 0]])
def test_dataframe_without_rows_gives_no_chunk(sizes):
    """Whatever batches Spark makes of it."""
    assert encoded(Frame(batches=batches_of(sizes)), size=5) == []


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
