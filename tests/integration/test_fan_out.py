"""Rows that name their tables, from a queue through Spark: by the function, the format and a batch job."""

import pytest

from tests.flows import KEYS, differences, passed_on
from yt_exactly_once import create_table, register_source
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.operations.audit.run import audit
from yt_exactly_once.operations.ledgers import entries_of, tables_of

pytestmark = pytest.mark.further

TABLES = "by_key/{key}/rows"


@pytest.fixture
def fan(stream):
    """A query that writes a table for each key."""
    flow = stream(rows=1_500, rows_per_partition=500)
    flow.target = f"{flow.queue.path}_{TABLES}"
    return flow


def rows_of(flow):
    paths = tables_of(flow.connection, flow.target)
    assert len(paths) == KEYS
    found = []
    for path in paths:
        rows = flow.query.found(flow.client, path)
        assert {row[3] for row in rows} == {int(path.split("/")[-2])}, path
        found += rows
    return found


def test_each_row_is_once_in_the_table_that_it_names(fan):
    """By the function and by the format, in turns on one checkpoint, with replays in between."""
    fan.run(create={})
    assert differences(rows_of(fan), passed_on(fan.queue)) == ""
    for run in (fan.write, fan.run, fan.write):
        fan.forget_last_batch()
        fan.queue.append(300)
        run(create="{}" if run == fan.write else {})
    assert differences(rows_of(fan), passed_on(fan.queue)) == ""
    assert fan.queue.stored(fan.consumer) == fan.queue.ends()
    (row,) = entries_of(fan.connection, fan.target)
    assert row.entry.tally.total_rows == len(fan.queue.all_rows())
    for path in tables_of(fan.connection, fan.target):
        found = audit(path, connection=fan.connection)
        assert found.rows == found.expected_rows > 0


def test_batch_job_writes_each_row_once_into_the_table_that_it_names(spark, cluster, client, tmp):
    """However often the job is run."""
    register_source(spark)
    path = f"{tmp}/{{shop}}"
    frame = spark.range(100).selectExpr("id", "concat('s', id % 7) as shop").repartition(3)
    create_table(f"{tmp}/s0", frame.schema, key_columns=["id"], proxy=cluster.proxy_urls[0])
    for _ in range(2):
        (
            frame.write.format("yt")
            .options(proxy=cluster.proxy_urls[0], application="job", version=1, create="{}")
            .mode("append")
            .save(path)
        )
    for shop in range(7):
        found = sorted(row["id"] for row in client.select_rows(f"id from [{tmp}/s{shop}]"))
        assert found == list(range(shop, 100, 7))


def test_column_of_the_path_is_checked_before_the_start(fan):
    sink = fan.sink()
    with pytest.raises(ConfigError, match="names its tables by key, and the DataFrame has no such"):
        sink.check(fan.frame().drop("key"))
    sink.check(fan.frame())
