"""`spark.read.format("yt")`: whole tables and ranges of queues, read once, in parts."""

import pickle
import sys
import uuid

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from yt.yson import YsonUint64

from tests.flows import Queue, columns, create_table
from yt_exactly_once.codec.spark_types import parse_schema
from yt_exactly_once.errors import (
    ConfigError,
    ConflictError,
    DataLossError,
    SchemaMismatchError,
    TableNotDynamicError,
)
from yt_exactly_once.spark.data_source import YtDataSource
from yt_exactly_once.spark.schema import spark_schema_of
from yt_exactly_once.spark.source import tables

SORTED = columns(
    {"shop": "uint64?", "name": "string?", "amount": "int64?", "at": "date"}, ["shop", "name"]
)
PIVOTS = [[], [YsonUint64(3)], [YsonUint64(8), "a"]]
NAMES = ['plain "quoted" \\ name', "", "имя", "a\nb", None]
"""Keys that a query must quote."""


def customers(count):
    return [
        {"shop": number // 5, "name": NAMES[number % 5] and f"{NAMES[number % 5]}{number}"}
        | {"amount": None if number % 11 == 0 else number, "at": 19_000 + number}
        for number in range(count)
    ]


def pairs(rows):
    return sorted((row["shop"], row["name"] or "", row["amount"] or -1) for row in rows)


@pytest.fixture
def read(spark, cluster):
    """Read a table; keyword arguments are options."""

    def load(path, schema=None, **options):
        reader = spark.read.format("yt_exactly_once").options(
            proxy=cluster.proxy_urls[0], **options
        )
        return (reader.schema(schema) if schema else reader).load(path)

    return load


@pytest.fixture
def small_parts(monkeypatch):
    """Pages of 10 rows; the processes that Spark starts do not have it, so readers run here."""
    monkeypatch.setattr(tables, "ROWS_PER_PAGE", 10)
    monkeypatch.setattr(tables, "ROWS_PER_TASK", 25)


@pytest.fixture
def sorted_table(client, tmp):
    """A sorted dynamic table of three tablets."""
    path = f"{tmp}/customers-{uuid.uuid4()}"
    create_table(client, path, SORTED, pivot_keys=PIVOTS)
    client.insert_rows(path, customers(100))
    return path


@pytest.fixture
def static_table(client, tmp):
    """A static table."""
    path = f"{tmp}/static-{uuid.uuid4()}"
    schema = [{**column, "sort_order": None} for column in SORTED]
    plain = [{key: column[key] for key in column if column[key]} for column in schema]
    client.create("table", path, attributes={"schema": plain})
    client.write_table(path, customers(100))
    return path


def everything(reader):
    """Run a reader as Spark would, in this process."""
    return [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


@pytest.fixture
def reader(cluster):
    """Return a reader of a table in this process."""

    def make(path, *columns, **options):
        given = {"path": path, "proxy": cluster.proxy_urls[0], **options}
        source = YtDataSource(given)
        schema = source.schema()
        wanted = [field for field in schema if not columns or field.name in columns]
        return source.reader(StructType(wanted))

    return make


@pytest.mark.usefixtures("small_parts")
def test_sorted_table_is_read_at_one_moment_in_pages(reader, client, sorted_table):
    """Keys of every kind begin a page; what is written after the planning is not seen."""
    asked = pickle.loads(pickle.dumps(reader(sorted_table, "name", "shop", "amount")))
    parts = asked.partitions()
    assert len(parts) == 3
    client.insert_rows(sorted_table, [{"shop": 1, "name": "late", "amount": 1, "at": 1}])
    client.delete_rows(sorted_table, [{"shop": 0, "name": customers(1)[0]["name"]}])
    found = [row for part in parts for batch in asked.read(part) for row in batch.to_pylist()]
    assert pairs(found) == pairs(customers(100))
    assert set(found[0]) == {"name", "shop", "amount"}


@pytest.mark.usefixtures("small_parts")
def test_columns_without_the_key_are_enough(reader, sorted_table):
    """The key is asked for, to find the next page, and not returned."""
    found = everything(reader(sorted_table, "amount"))
    assert sorted(row["amount"] or -1 for row in found) == sorted(
        row["amount"] or -1 for row in customers(100)
    )
    assert set(found[0]) == {"amount"}


@pytest.mark.usefixtures("small_parts")
def test_static_table_is_read_in_ranges(reader, static_table):
    asked = reader(static_table)
    assert len(asked.partitions()) == 4
    assert pairs(everything(asked)) == pairs(customers(100))


@pytest.mark.usefixtures("small_parts")
def test_plain_columns_of_a_static_table_come_as_arrow(reader, client, tmp, monkeypatch):
    """They are what YSON gives; so are strings that are no UTF-8."""
    path, names = f"{tmp}/plain", ("text", "raw", "small", "share", "sure", "at")
    kinds = ("utf8", "string", "uint8", "double", "boolean", "date")
    schema = [{"name": name, "type": kind} for name, kind in zip(names, kinds, strict=True)]
    client.create("table", path, attributes={"schema": schema})
    values = ("имя", "b", 255, 0.5, True, 19_000), (None,) * 6, ("", "", 0, -1.0, False, 0)
    rows = [dict(zip(names, row, strict=True)) for row in values]
    client.write_table(path, rows * 20)
    by_yson = monkeypatch.setattr(tables, "_SAME_IN_ARROW", frozenset()) or everything(reader(path))
    monkeypatch.undo()
    monkeypatch.setattr(tables, "decode", None)
    assert everything(reader(path)) == by_yson
    assert len(by_yson) == 60
    client.write_table(path, [{"raw": b"\xff"}])
    monkeypatch.undo()
    (rows,) = reader(path).read(reader(path).partitions()[0])
    assert rows.column("raw").cast("binary").to_pylist() == [b"\xff"]


def test_decimals_of_a_static_table_are_no_texts(reader, client, tmp):
    """Their bytes may be digits, and their older type is string."""
    path, stored = f"{tmp}/decimals", b"5000000000000000"
    kind = {"type_name": "decimal", "precision": 38, "scale": 0}
    client.create("table", path, attributes={"schema": [{"name": "d", "type_v3": kind}]})
    client.write_table(path, [{"d": stored}])
    (row,) = everything(reader(path))
    assert int(row["d"]) == int.from_bytes(stored, "big") - 2**127


@pytest.mark.usefixtures("small_parts")
def test_static_table_that_is_written_meanwhile_is_an_error(reader, client, static_table):
    """Rows of two moments would be mixed."""
    asked = reader(static_table)
    parts = asked.partitions()
    client.write_table(static_table, customers(99))
    with pytest.raises(ConflictError, match="different moments"):
        next(asked.read(parts[0]))


def test_sorted_table_that_was_replaced_since_is_an_error(reader, client, sorted_table):
    """Spark plans a read once for each load. Of that moment the new table has no rows."""
    asked = reader(sorted_table, "amount")
    parts = asked.partitions()
    client.remove(sorted_table)
    create_table(client, sorted_table, SORTED, pivot_keys=PIVOTS)
    client.insert_rows(sorted_table, customers(100))
    with pytest.raises(ConflictError, match=r"replaced or removed.*Load it again"):
        next(asked.read(parts[0]))


def test_queue_that_was_replaced_since_is_an_error(reader, client, tmp):
    """The rows of the new one may have other columns, which would be null."""
    path, schema = f"{tmp}/queue", columns({"id": "int64?", "name": "string?"})
    create_table(client, path, schema, tablet_count=1)
    client.insert_rows(path, [{"id": 1, "name": "a", "$tablet_index": 0}])
    until = {"ending_offsets": '{"0": 1}'}
    asked = reader(path, **until)
    parts = asked.partitions()
    client.remove(path)
    create_table(client, path, columns({"id": "int64?", "title": "string?"}), tablet_count=1)
    client.insert_rows(path, [{"id": 2, "title": "b", "$tablet_index": 0}])
    reader(path, **until).partitions()  # waits for the row
    with pytest.raises(DataLossError, match=r"recreated.*Load it again"):
        next(asked.read(parts[0]))


@pytest.mark.usefixtures("small_parts")
def test_range_of_a_queue_is_read_in_parts(reader, client, tmp):
    queue = Queue.filled(client, tmp, rows=100, partitions=2)
    ends = {"ending_offsets": '{"0": 90, "1": 40}', "starting_offsets": '{"0": 30, "1": 40}'}
    asked = reader(queue.path, "id", **ends)
    assert len(asked.partitions()) == 3
    assert [row["id"] for row in everything(asked)] == [row["id"] for row in queue.rows[0][30:90]]
    assert len(everything(reader(queue.path))) == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ending_offsets": '{"0": 101, "1": 0}'}, "row that exists"),
        ({"ending_offsets": '{"0": 10}'}, "every partition"),
        ({"ending_offsets": "never"}, "not understood"),
        ({"ending_offsets": '{"0": 10, "1": "10"}'}, "not understood"),
        ({"max_rows_per_partition": "5"}, "has no batches"),
    ],
)
def test_bad_part_of_a_queue_is_refused(reader, client, tmp, options, message):
    queue = Queue.filled(client, tmp, rows=100, partitions=2)
    with pytest.raises(ConfigError, match=message):
        reader(queue.path, **options).partitions()


def test_options_of_queues_are_refused_for_other_tables(reader, static_table):
    with pytest.raises(TableNotDynamicError):
        reader(static_table, starting_offsets="earliest")


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", ["sorted", "static", "queue"])
def test_columns_without_nulls_are_chosen_as_ddl_names_them(client, cluster, tmp, kind):
    """It has no words for an array without nulls, and few people write NOT NULL."""
    schema = columns({"id": "int64", "name": "string?"}, ["id"] if kind == "sorted" else [])
    schema.append({"name": "tags", "type_v3": {"type_name": "list", "item": "int64"}})
    path, rows = f"{tmp}/required", [{"id": 1, "tags": [7]}, {"id": 2, "tags": []}]
    if kind == "static":
        client.create("table", path, attributes={"schema": schema})
        client.write_table(path, rows)
    else:
        create_table(client, path, schema)
        client.insert_rows(path, rows)
    until = {"ending_offsets": '{"0": 2}'} if kind == "queue" else {}
    source = YtDataSource({"path": path, "proxy": cluster.proxy_urls[0], **until})
    wanted = spark_schema_of(parse_schema("tags array<bigint>, id bigint"))
    asked = source.reader(wanted)
    found = [rows for part in asked.partitions() for rows in asked.read(part)]
    assert {rows.schema for rows in found} == {to_arrow_schema(wanted, timezone="UTC")}
    assert [row["tags"] for rows in found for row in rows.to_pylist()] == [[7], []]
    for other in ("id int", "name string not null"):
        with pytest.raises(SchemaMismatchError, match="without NOT NULL"):
            source.reader(spark_schema_of(parse_schema(other)))


@pytest.mark.nightly
def test_columns_that_are_not_there_are_refused(read, sorted_table):
    with pytest.raises(AnalysisException, match="Name columns of the table with their types"):
        read(sorted_table, "amount string").collect()


@pytest.mark.further
@pytest.mark.parametrize("pushes", [False, True])
def test_spark_reads_chosen_columns_and_joins(spark, read, sorted_table, static_table, pushes):
    """Whether Spark may push filters down or not: what one query wants is not taken for all others."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushes)
    try:
        dynamic = read(sorted_table, "name binary, amount bigint", binary_strings="true")
        static = read(static_table).where("amount > 42").withColumnRenamed("amount", "other")
        joined = dynamic.where("amount > 40").join(static, sf.col("amount") == sf.col("other"))
        wanted = [row["amount"] for row in customers(100) if (row["amount"] or 0) > 42]
        assert sorted(row.amount for row in joined.collect()) == wanted
        assert dynamic.count() == 100
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_reader_takes_no_filters(reader, sorted_table, monkeypatch):
    """Spark uses a read that was planned with those of one query for all queries of a load."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.worker.data_source_pushdown_filters", sys)
    asked = type(reader(sorted_table))
    assert getattr(asked, "pushFilters", None) is getattr(DataSourceReader, "pushFilters", None)


@pytest.mark.further
def test_stream_of_a_table_that_is_no_queue_is_refused(spark, cluster, sorted_table, tmp_path):
    rows = spark.readStream.format("yt_exactly_once").option("proxy", cluster.proxy_urls[0])
    writer = rows.load(sorted_table).writeStream.format("noop")
    with pytest.raises(StreamingQueryException, match=r"Use spark\.read for this table"):
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(60)
