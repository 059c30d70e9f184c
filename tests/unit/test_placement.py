"""Which tablet of an ordered target takes a row, by rule, without Spark."""

import pyarrow as pa
import pytest

from yt_exactly_once.codec.schema import SOURCE_TABLET_COLUMN
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.sink.placement import TABLET_COLUMN, Placement
from yt_exactly_once.spark.sink.target import BY_PARTITION, PRESERVE, ROUND_ROBIN


@pytest.mark.parametrize(
    ("rule", "columns"),
    [
        (BY_PARTITION, ["id"]),
        (ROUND_ROBIN, ["id"]),
        (PRESERVE, ["id", SOURCE_TABLET_COLUMN]),
        (("id", "v"), ["v", "id"]),
    ],
)
def test_rule_whose_columns_are_there_is_accepted(rule, columns):
    """Most rules need none."""
    Placement(3, rule).require_columns(columns, "//t")


@pytest.mark.parametrize(
    ("rule", "missing", "remedy"),
    [
        (PRESERVE, SOURCE_TABLET_COLUMN, "include_service_columns=true"),
        (("id", "v"), "v", "Choose from: id"),
    ],
)
def test_rule_whose_column_is_missing_is_refused(rule, missing, remedy):
    """The error names the column, and where it comes from."""
    with pytest.raises(ConfigError, match=rf"column {missing}.*{remedy}"):
        Placement(3, rule).require_columns(["id"], "//t")


@pytest.mark.parametrize("rule", [PRESERVE, (SOURCE_TABLET_COLUMN,)])
def test_rule_whose_column_is_there_twice_is_refused(rule):
    """After a join of two queues nobody knows which of the two is meant."""
    with pytest.raises(ConfigError, match="more than once"):
        Placement(3, rule).require_columns(["id", *[SOURCE_TABLET_COLUMN] * 2], "//t")


@pytest.mark.parametrize("rule", [PRESERVE, ROUND_ROBIN, ("id",)])
def test_rule_for_a_sorted_target_is_refused(rule):
    """Keys choose the tablets there, so the rule would be ignored."""
    with pytest.raises(ConfigError, match="this one is sorted"):
        Placement(None, rule).require_columns(["id", SOURCE_TABLET_COLUMN], "//t")
    Placement(None).require_columns(["id"], "//t")


def placed(tablets):
    """Return rows with tablets, numbered."""
    return pa.record_batch(
        {"id": list(range(len(tablets))), TABLET_COLUMN: pa.array(tablets, pa.int64())}
    )


def split(placement, rows, partition=4):
    return [
        (tablet, part.column("id").to_pylist()) for tablet, part in placement.split(rows, partition)
    ]


def test_rows_of_one_tablet_stay_together_and_in_order():
    """One part for each tablet that has any."""
    found = split(Placement(4, ROUND_ROBIN), placed([2, 0, 2, 0, 3]))
    assert found == [(0, [1, 3]), (2, [0, 2]), (3, [4])]


@pytest.mark.parametrize(("tablet_count", "tablet"), [(3, 1), (4, 0), (5, 4), (None, None)])
def test_spark_partition_decides_by_default(tablet_count, tablet):
    """Partitions take turns; where keys choose, nothing is decided."""
    rows = placed([0, 0])
    assert split(Placement(tablet_count), rows) == [(tablet, [0, 1])]
    each = Placement(tablet_count).tablets(rows, pa.array([4, 4], pa.int32()))
    assert each is None if tablet is None else each.to_pylist() == [tablet, tablet]


def test_spark_partitions_begin_at_another_tablet_in_each_short_batch():
    """Otherwise batches of one Spark partition would all go to tablet 0."""
    placement = Placement(3, turn=7)
    assert [placement.tablets(placed([]), partition) for partition in range(3)] == [1, 2, 0]
    each = placement.tablets(placed([0, 0]), pa.array([1, 2], pa.int32()))
    assert each.to_pylist() == [2, 0]


@pytest.mark.parametrize("tablets", [[0, 1], []])
def test_tablets_that_are_there_are_taken_as_they_are(tablets):
    """The last one is one less than the count."""
    rows = placed(tablets)
    assert Placement(2, PRESERVE).tablets(rows, 4).to_pylist() == tablets
