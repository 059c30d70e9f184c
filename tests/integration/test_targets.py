"""Targets that are looked at again: what makes them other targets, and what does not."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from yt_exactly_once import Target
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.errors import TableNotFoundError
from yt_exactly_once.spark.schema import spark_schema_of
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.targets import are_the_same, prepare_target
from yt_exactly_once.ytsaurus.client import Connection

LIST = {"type_name": "list", "item": {"type_name": "optional", "item": "string"}}
COLUMNS = [
    {"name": "k", "type_v3": "int8", "sort_order": "ascending"},
    {"name": "v", "type_v3": LIST},
]
MORE = [*COLUMNS, {"name": "w", "type_v3": {"type_name": "optional", "item": "int64"}}]


@pytest.fixture
def table(cluster, client, tmp):
    """A mounted table, and a look at it once it was prepared."""
    path = f"{tmp}/target"

    def create():
        client.create("table", path, attributes={"dynamic": True, "schema": COLUMNS})
        client.mount_table(path, sync=True)

    create()
    connection = Connection(ClusterConfig(proxy=cluster.proxy_urls[0]))
    frame = spark_schema_of(pa.schema([("k", pa.int8()), ("v", pa.list_(pa.string()))]))
    prepared = prepare_target(
        connection,
        Target(path),
        frame,
        SinkOptions(path, proxy="asked by none", rows_per_tablet_limit=100),
    )

    def look():
        return are_the_same(connection, [prepared])

    return SimpleNamespace(path=path, create=create, look=look)


def test_target_stays_the_same_while_nobody_changes_it(table, client):
    """Rows, and being mounted again, do not count."""
    assert table.look()
    client.insert_rows(table.path, [{"k": 1, "v": ["a"]}])
    client.unmount_table(table.path, sync=True)
    assert table.look()
    client.mount_table(table.path, sync=True)
    assert table.look()


def test_target_with_other_columns_is_another_one(table, client):
    """The rows would be encoded for the columns it had."""
    client.unmount_table(table.path, sync=True)
    client.alter_table(table.path, schema=MORE)
    assert not table.look()


def test_table_in_place_of_the_target_is_another_one(table, client):
    """Though it has the same columns; whatever is there, and if nothing is."""
    client.remove(table.path)
    with pytest.raises(TableNotFoundError):
        table.look()
    table.create()
    assert not table.look()
    client.remove(table.path)
    client.create("map_node", table.path)
    assert not table.look()
