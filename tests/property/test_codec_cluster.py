"""Random tables through a cluster and back: by either wire format the rows are those that were sent.

`--hypothesis-profile=deep` asks for as many examples as the release is held to.
"""

import itertools
from datetime import timedelta

import pytest
import yt.yson
from hypothesis import HealthCheck, given, settings

from tests.contract.tables import create
from tests.property.random_tables import batch_of, tables, types
from yt_exactly_once.codec.row_hash import row_hashes
from yt_exactly_once.codec.rows import TABLET_INDEX, WireFormat, decode, encode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, check_frame
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.tables import describe_table

MAX_DIGITS = 76
OLD_PROXIES = {"arrow_any_as_string": True, "arrow_wide_decimal_as_text": True}
LEASE = timedelta(seconds=30)
numbers = itertools.count()


@pytest.fixture(scope="module")
def connection():
    with LocalCluster(features=OLD_PROXIES) as cluster:
        yield Connection(ClusterConfig(proxy=cluster.proxy_urls[0]))


def stored_rows(payload):
    """Return pulled rows as bytes, without their coordinates."""
    rows = list(yt.yson.loads(payload, yson_type="list_fragment", encoding=None))
    for row in rows:
        del row[TABLET_INDEX.encode()], row[b"$row_index"]
    return [yt.yson.dumps(row, yson_format="binary") for row in rows]


@pytest.mark.timeout(7_200)
@settings(
    deadline=None,
    max_examples=10_000 if settings.get_current_profile_name() == "deep" else 40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(tables(types(MAX_DIGITS)))
def test_rows_come_back_as_they_were_by_both_formats(connection, table):
    """Write rows as Arrow into partition 0 and as YSON into partition 1; bit for bit the same comes back."""
    columns, types_drawn, rows = table
    client = connection.reader
    path = create(client, f"//tmp/random-{next(numbers)}", columns, tablet_count=2)
    schema = TableSchema.from_yt(describe_table(connection, path).schema)
    frame = arrow_schema_of(schema, binary_strings=True)
    plan = check_frame(frame, schema, target=path, sorted=False)
    batch = batch_of(frame, types_drawn, rows)
    # Not every column can be sent as Arrow.
    formats = [WireFormat.YSON] if plan.arrow_obstacles else [WireFormat.ARROW, WireFormat.YSON]
    for tablet, wire in enumerate(formats):
        transaction = connection.begin(LEASE)
        transaction.write(
            path, [Payload(len(rows), encode(batch, plan, wire, tablet_index=tablet))], wire.value
        )
        transaction.commit()
    queue = RemoteQueue(connection, path)
    pulled = [queue.pull(n, 0, 10) for n in range(len(formats))]
    client.remove(path)

    assert stored_rows(pulled[0]) == stored_rows(pulled[-1])
    # Compared as bytes: to Arrow, NaN differs from NaN.
    sent = encode(batch, plan, WireFormat.YSON)
    for payload in pulled:
        found = decode(payload, frame)
        found.validate(full=True)
        assert encode(found, plan, WireFormat.YSON) == sent
        hashes = [row_hashes(each, plan.columns).tolist() for each in (batch, found)]
        assert hashes[0] == hashes[1]
