"""Proxies that store some columns wrongly when they arrive as Arrow: the sink does not send them so."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from yt_exactly_once import Target
from yt_exactly_once.codec.rows import WireFormat, decode, encode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.schema import spark_schema_of
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.targets import prepare_target
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.queues import RemoteQueue

WIDE = {"type_name": "decimal", "precision": 38, "scale": 2}
ANYS = {"type_name": "list", "item": {"type_name": "optional", "item": "yson"}}
# As text the decimal has 16 bytes, which are a decimal too.
VALUES = {
    "any": ("yson", b"[\x02\x02;]"),
    "wide": (WIDE, Decimal("5000000000000.12")),
    "list": (ANYS, [b"{\x01\x02a=\x02\x02;}", None]),
}
RISKY = ["any", "wide"]


@pytest.fixture(scope="module")
def cluster():
    features = {"arrow_any_as_string": True, "arrow_wide_decimal_as_text": True}
    with LocalCluster(features=features) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster):
    return cluster.client()


@pytest.fixture
def written(cluster, client, tmp):
    """Write one row of those columns as a sink would; return its wire format, and what was kept."""
    connection = Connection(ClusterConfig(proxy=cluster.proxy_urls[0]))

    def write(wire, *names):
        columns = [
            {"name": name, "type_v3": {"type_name": "optional", "item": VALUES[name][0]}}
            for name in names
        ]
        path = f"{tmp}/queue"
        client.create("table", path, attributes={"dynamic": True, "schema": columns})
        client.mount_table(path, sync=True)
        frame = arrow_schema_of(TableSchema.from_yt(columns), binary_strings=True)
        described = spark_schema_of(frame)
        target = prepare_target(
            connection,
            Target(path),
            described,
            SinkOptions(path, proxy="asked by none", wire_format=wire),
        )
        row = {name: VALUES[name][1] for name in names}
        payload = encode(pa.RecordBatch.from_pylist([row], frame), target.plan, target.wire)
        transaction = connection.begin(timedelta(seconds=30))
        transaction.write(path, [Payload(1, payload)], target.wire.value)
        transaction.commit()
        (found,) = decode(RemoteQueue(connection, path).pull(0, 0, 10), frame).to_pylist()
        return target.wire, found == row

    return write


@pytest.mark.parametrize("name", RISKY)
def test_column_that_the_proxy_would_store_wrongly_is_written_as_yson(written, name):
    """Together with the columns that Arrow could carry."""
    assert written("auto", name, "list") == (WireFormat.YSON, True)


@pytest.mark.parametrize("name", RISKY)
def test_wire_format_that_would_change_values_is_refused(written, name):
    """Which proxies a cluster has is not known, and may change."""
    with pytest.raises(ConfigError, match=rf"column {name} cannot be sent as Arrow.*'auto'"):
        written("arrow", name)


def test_values_inside_composite_columns_are_safe_as_arrow(written):
    """They are YSON to every version."""
    assert written("arrow", "list") == (WireFormat.ARROW, True)
