"""Filters of Spark as conditions that the cluster checks."""

import pytest
from pyspark.sql import datasource

from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of
from yt_exactly_once.spark.source.tables import _condition

TABLE = TableSchema.from_yt(
    [
        {"name": name, "type_v3": name}
        for name in ("string", "utf8", "json", "uuid", "yson", "int8", "uint8", "uint32")
    ]
)


@pytest.mark.parametrize("name", ["string", "utf8", "json", "uuid", "yson"])
def test_texts_are_compared_by_the_cluster_where_it_has_the_same(name):
    """A uuid is bytes there, and any is YSON: no row would be equal to the text that Spark sees."""
    columns = arrow_schema_of(TABLE, uuid_text=True, any_json=True)
    found = [
        _condition(one((name,), value), columns)
        for one, value in ((datasource.EqualTo, "x"), (datasource.In, ("x", "y")))
    ]
    is_pushed = name not in {"uuid", "yson"}
    assert [bool(one) for one in found] == [is_pushed, is_pushed]


def test_numbers_are_compared_by_the_cluster():
    assert _condition(datasource.LessThan(("int8",), 3), arrow_schema_of(TABLE))


@pytest.mark.parametrize("name", ["uint8", "uint32"])
def test_negative_number_is_not_compared_with_unsigned_ones_by_the_cluster(name):
    """It keeps its bits there: nothing would be greater than -1."""
    columns = arrow_schema_of(TABLE)
    asked = datasource.GreaterThan((name,), -1), datasource.In((name,), (1, -1))
    assert [_condition(one, columns) for one in asked] == ["", ""]
    assert _condition(datasource.GreaterThan((name,), 0), columns) == f"[{name}] > 0"
    assert _condition(datasource.GreaterThan(("int8",), -1), columns) == "[int8] > -1"
