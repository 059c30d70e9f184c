"""The page about changes, as a reader would copy it, and what Debezium's messages say."""

import json

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import SparkRuntimeException

from tests.code_blocks import blocks
from tests.flows import columns, create_table
from yt_exactly_once import Changes, debezium_changes, register_source
from yt_exactly_once import create_table as create
from yt_exactly_once.errors import ConfigError, SchemaMismatchError
from yt_exactly_once.local import LocalCluster

pytestmark = pytest.mark.further


@pytest.mark.parametrize("at_once", [True, False])
def test_messages_of_the_page_become_the_table(spark, tmp_path, monkeypatch, at_once):
    """In one batch, and each in a batch of its own."""
    with LocalCluster() as cluster:
        client = cluster.client()
        create_table(client, "//home/shop/cdc", columns({"value": "utf8?"}))
        monkeypatch.setenv("YT_PROXY", cluster.proxy_urls[0])
        register_source(spark)
        first, *pages = (block.code for block in blocks("docs/how-to/keep-changes.md"))
        names = {"spark": spark}
        exec(compile(first, "the block", "exec"), names)
        exec(compile(pages[0], "the block", "exec"), names)
        rows = [{"value": text} for text in names["messages"]]
        program = pages[1].replace("/data/checkpoints", str(tmp_path))
        program = program.replace("query.awaitTermination()", "")
        exec(compile(program, "a block", "exec"), names)
        for wave in [rows] if at_once else [[row] for row in rows]:
            client.insert_rows("//home/shop/cdc", wave)
            names["query"].processAllAvailable()
        names["query"].stop()
        found = list(client.select_rows("* from [//home/shop/customers]"))
        assert found == [{"id": 1, "name": "Ann", "city": "Riga", "lsn": 30}]
        (tombstone,) = client.select_rows("* from [//home/shop/customers_tombstones]")
        assert tombstone == {"id": 2, "lsn": 50}


def changed(spark, *messages, rows="id bigint, text string", **more):
    """Return the changes that messages say, each a dict or a text."""
    texts = [
        (text if text is None or isinstance(text, str) else json.dumps(text),) for text in messages
    ]
    found = debezium_changes(spark.createDataFrame(texts, "value string"), "value", rows, **more)
    return [tuple(row) for row in found.collect()]


ROW = {"id": 2**60, "text": "é", "other": 1}


def test_envelope_is_flattened(spark):
    """With and without `payload`; what is not about rows is left out."""
    insert = {"before": None, "after": ROW, "op": "r", "source": {"lsn": 7, "db": "shop"}}
    found = changed(
        spark,
        insert,
        {"schema": {"type": "struct"}, "payload": {**insert, "op": "c"}},
        {"before": {"id": 3}, "after": None, "op": "d", "source": {"lsn": 8}},
        None,
        {"op": "m", "source": {"lsn": 9}, "message": {}},
        {"op": "t", "source": {"lsn": 10}},
    )
    row = 2**60, "é"
    assert found == [(*row, 7, "r"), (*row, 7, "c"), (3, None, 8, "d"), (None, None, 10, "t")]


def test_other_databases_name_other_fields_of_the_source(spark):
    message = {"after": ROW, "op": "c", "source": {"file": "bin.000003", "pos": 4, "row": 0}}
    found = changed(spark, message, source="file string, pos bigint, row int")
    assert found == [(2**60, "é", "bin.000003", 4, 0, "c")]


def test_value_that_is_not_sent_is_no_value(spark):
    """PostgreSQL sends no large value that an update has left. A delete needs none."""
    absent = {"id": 1, "text": "__debezium_unavailable_value"}
    found = changed(
        spark,
        {"after": absent, "op": "u", "source": {"lsn": 1}},
        {"before": absent, "op": "d", "source": {"lsn": 2}},
    )
    assert [row[-1] for row in found] == ["unavailable", "d"]


ABSENT = b"__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("kind", "absent", "there"),
    [
        ("string", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "YQ=="),
        ("string", ABSENT.hex(), "61"),
        ("binary", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "YQ=="),
        ("array<string>", [ABSENT.decode()], ["a"]),
        ("array<string>", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"], []),
        ("array<binary>", ["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="], [None]),
        ("array<int>", [*ABSENT], [*ABSENT[1:]]),
        ("array<bigint>", [*ABSENT], []),
        ("array<double>", [*map(float, ABSENT)], [95.0]),
        ("array<decimal(9,2)>", [*ABSENT], [95]),
        ("array<boolean>", [True] * len(ABSENT), [True]),
        ("map<string,string>", {ABSENT.decode(): ABSENT.decode()}, {}),
        ("string", json.dumps({ABSENT.decode(): ABSENT.decode()}, separators=(",", ":")), "{}"),
    ],
)
def test_value_that_is_not_sent_is_known_in_each_type(spark, kind, absent, there):
    """Otherwise it would be written, in the place of the value that the row has."""
    messages = [
        {"after": {"id": 1, "x": value}, "op": "u", "source": {"lsn": 1}}
        for value in (absent, there, None)
    ]
    found = changed(spark, *messages, rows=f"id bigint, x {kind}")
    assert [row[-1] for row in found] == ["unavailable", "u", "u"]


@pytest.mark.parametrize(
    "text",
    ['{"op": "c", "after": {"id": "many"}}', "null", '[{"op": "c"}]', '{"op": "c", "after": {"id": 1.5}}'],
)  # fmt: skip
def test_message_that_does_not_fit_stops_the_query(spark, text):
    """It must not become a null."""
    with pytest.raises((Py4JJavaError, SparkRuntimeException), match="MALFORMED_RECORD_IN_PARSING"):
        changed(spark, text)


@pytest.mark.parametrize(
    "text",
    ["{", "", '{"op": "c"}\n{"op": "d"}', '{"op": "c"}, {"op": "d"}', "{} }", '{"op": "c"}]',
     '{"op": "c"}], [{"op": "d"}', '{"op": "c"}, 0]'],
)  # fmt: skip
def test_message_that_is_not_one_document_stops_the_query(spark, text):
    """Spark reads the first document of a text, and leaves out all others."""
    with pytest.raises((Py4JJavaError, SparkRuntimeException), match="not one JSON document"):
        changed(spark, text)


def test_column_that_would_come_twice_is_refused(spark):
    with pytest.raises(ConfigError, match="the column op twice"):
        changed(spark, rows="id bigint, op string")


def test_table_for_changes_has_a_sequence_and_no_operation(cluster, client, tmp):
    """Its tombstones are created with it; a second call changes nothing."""
    schema = columns({"id": "int64", "name": "utf8?", "lsn": "int64", "op": "utf8?"})
    schema = [{"name": each["name"], "type_v3": each["type_v3"]} for each in schema]
    changes, given = Changes(sequence="lsn", operation="op"), {"proxy": cluster.proxy_urls[0]}
    path = f"{tmp}/customers"
    for created in (True, False):
        assert create(path, schema, key_columns=["id"], changes=changes, **given) is created
    assert [each["name"] for each in client.get(f"{path}/@schema")] == ["id", "name", "lsn"]
    beside = client.get(f"{path}_tombstones/@", attributes=["tablet_state", "schema"])
    assert beside["tablet_state"] == "mounted"
    assert [(each["name"], each.get("sort_order")) for each in beside["schema"]] == [
        ("id", "ascending"),
        ("lsn", None),
    ]
    with pytest.raises(ConfigError, match="need a sorted table"):
        create(f"{tmp}/log", schema, changes=changes, **given)
    with pytest.raises(ConfigError, match="scn, which is no value"):
        create(path, schema, key_columns=["id"], changes=Changes(sequence="scn"), **given)
    with pytest.raises(SchemaMismatchError):
        create(path, schema, key_columns=["name"], changes=changes, **given)


def test_tombstones_of_another_key_are_refused(stream, client):
    """They would be looked up in vain."""
    flow = stream(is_sorted=True, rows=10)
    create_table(
        client, f"{flow.target}_tombstones", columns({"other": "int64", "id": "int64"}, ["other"])
    )
    text = flow.fail("TableError", changes=Changes(sequence="id"))
    assert "cannot serve as the tombstones" in text
    assert "yt remove" in text


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"sequence": "lsn"},
            "sequence of changes names lsn, and the DataFrame has no such column",
        ),
        ({"sequence": "part"}, "names part, which is part of the key"),
        (
            {"sequence": "id", "operation": "op"},
            "operation of changes names op, and .* no such column",
        ),
        ({"sequence": "id", "operation": "value"}, "names value, and .* a column of type int64"),
    ],
)
def test_columns_of_changes_are_checked_before_the_first_row(stream, changes, named):
    flow = stream(is_sorted=True, rows=10)
    with pytest.raises(ConfigError, match=named):
        flow.sink(changes=Changes(**changes)).check(flow.frame())


def test_ordered_target_is_refused(stream):
    flow = stream(rows=10)
    with pytest.raises(ConfigError, match="changes needs a sorted target"):
        flow.sink(changes=Changes(sequence="id")).check(flow.frame())
