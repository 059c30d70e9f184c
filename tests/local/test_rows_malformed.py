"""Rows that are no rows: a column twice, attributes of a value, attributes of a row."""

import json

import pyarrow as pa
import pytest
from yt import yson
from yt.wrapper import YtResponseError

from tests.arrow_streams import stream_of
from tests.contract.tables import columns, create, key_columns

SCHEMA = [*key_columns(k="int64"), *columns(v="string", a="any")]
YSON = {"Content-Type": "application/x-yt-yson-text"}
JSON = {"Content-Type": "application/json"}
ARROW = {"X-YT-Input-Format": json.dumps("arrow")}


@pytest.fixture
def sorted_table(client, tmp):
    return create(client, f"{tmp}/sorted", SCHEMA)


@pytest.fixture
def static_table(client, tmp):
    client.create("table", f"{tmp}/static")
    return f"{tmp}/static"


@pytest.fixture
def pushing(client, tmp):
    """Parameters of a push to a queue."""
    create(client, f"{tmp}/queue", SCHEMA[1:])
    client.create("queue_producer", f"{tmp}/producer")
    client.create_queue_producer_session(f"{tmp}/producer", f"{tmp}/queue", "s")
    paths = {"producer_path": f"{tmp}/producer", "queue_path": f"{tmp}/queue"}
    return {**paths, "session_id": "s", "epoch": 0}


def _arrow(names, *columns):
    return stream_of(pa.record_batch([pa.array(column) for column in columns], names=names))


BINARY = yson.dumps({"k": 1, "v": "x"}, yson_format="binary")
TWICE = [
    (b'{k=1;v="x";v="y"}', YSON),
    (b'{k=1;v="x";"v"="y"}', YSON),
    (b'{k=1;v="x";"\\x76"="y"}', YSON),
    (b'{k = 1 ; a = {v = <v=1> [1; "v="]; k = 2} ; v = "}{;\\"=v" ; v = #}', YSON),
    (b"{k=1};" + BINARY.rstrip(b"}").rstrip(b";") + b";\x01\x02v=\x01\x02y};", YSON),
    (b'{k=0;v="x"};{k=1;k=1;v="x"}', YSON),
    (b'{"k":1,"v":"x","v":"y"}', JSON),
    (b'{"k":0}\n{"k":1,"v":"x","a":{"b":[1]},"k":1}', JSON),
    (_arrow(["k", "v", "v"], [1], ["x"], ["y"]), ARROW),
]


@pytest.mark.parametrize(("body", "headers"), TWICE)
def test_column_that_a_row_names_twice_is_refused(
    raw, client, sorted_table, static_table, body, headers
):
    """Which of the two values counts would be anybody's guess."""
    answer = raw.command("PUT", "insert_rows", {"path": sorted_table}, body, headers)
    assert answer.status == 400
    assert "Duplicate" in str(answer.error)
    assert list(client.select_rows(f"* from [{sorted_table}]")) == []
    answer = raw.command("PUT", "write_table", {"path": static_table}, body, headers)
    assert "column in unversioned row" in answer.error["message"]
    assert client.get(f"{static_table}/@row_count") == 0


@pytest.mark.parametrize(
    ("body", "headers"),
    [(b"{k=1;k=2}", YSON), (b'{"k":1,"k":2}', JSON), (_arrow(["k", "k"], [1], [2]), ARROW)],
)
@pytest.mark.parametrize("command", ["lookup_rows", "delete_rows"])
def test_key_that_names_a_column_twice_is_refused(
    raw, client, sorted_table, command, body, headers
):
    """A key has one value for each column."""
    client.insert_rows(sorted_table, [{"k": 2, "v": "x"}])
    answer = raw.command("PUT", command, {"path": sorted_table}, body, headers)
    assert answer.status == 400
    assert len(list(client.select_rows(f"* from [{sorted_table}]"))) == 1


def test_maps_inside_of_values_and_equal_rows_are_no_duplicates(raw, client, sorted_table):
    """Only the columns of one row are compared."""
    body = b'{k=1;v="k=1;v=2";a={k=1;v=[{k=2};{k=3}]}};{k=2;v="\\"";a=<>#};{v=#;k=3;a=[]}'
    assert raw.command("PUT", "insert_rows", {"path": sorted_table}, body, YSON).status == 200
    assert [row["k"] for row in client.select_rows(f"k from [{sorted_table}]")] == [1, 2, 3]


ATTRIBUTES = [
    (b'{k=1;v=<x=1>"x"}', YSON),
    (b"{k=1;a=<x=1>{}}", YSON),
    (b"{k=1};{k=2;a=<x=1>#}", YSON),
    (b'{"k":1,"a":{"$value":5,"$attributes":{"x":1}}}', JSON),
]


@pytest.mark.parametrize(("body", "headers"), ATTRIBUTES)
def test_value_with_attributes_is_refused(raw, client, sorted_table, static_table, body, headers):
    """A table has no place for them; inside of a value they stay."""
    for command, path in (("insert_rows", sorted_table), ("write_table", static_table)):
        answer = raw.command("PUT", command, {"path": path}, body, headers)
        assert answer.status == 400
        assert "Table values cannot have top-level attributes" in str(answer.error)
    client.insert_rows(sorted_table, [{"k": 1, "a": [yson.to_yson_type(1, {"x": 2})]}])
    (row,) = client.lookup_rows(sorted_table, [{"k": 1}])
    assert row["a"][0].attributes == {"x": 2}


@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        (b"<table_index=1>#;{k=1}", YSON, "Control attributes are not supported"),
        (b"<x=1>{k=1}", YSON, 'Failed to parse control attribute name "x"'),
        (b'{"$value":{"k":1},"$attributes":{"x":1}}', JSON, "control attribute name"),
        (b"[1;2]", YSON, "Invalid row format, map expected"),
    ],
)
def test_row_with_attributes_is_refused(raw, sorted_table, body, headers, message):
    """They are control attributes, and these tables take none."""
    answer = raw.command("PUT", "insert_rows", {"path": sorted_table}, body, headers)
    assert message in answer.error["message"]


@pytest.mark.parametrize("body", [b'{v="x";v="y";"$sequence_number"=1}', b'{v=<x=1>"x"}'])
def test_push_refuses_such_rows(raw, client, pushing, body):
    """A producer is told as well, and its session does not move."""
    answer = raw.command("PUT", "push_queue_producer", pushing, body, YSON)
    assert answer.status == 400
    message = str(answer.error)
    assert "Duplicate column" in message or "top-level attributes" in message
    assert list(client.select_rows(f"* from [{pushing['queue_path']}]")) == []


@pytest.mark.parametrize("function", ["dict_sum", "xdelta"])
def test_aggregates_that_are_lacking_are_refused_by_name(client, tmp, function):
    """When the table is created."""
    value = {"name": "v", "type": "any", "aggregate": function}
    with pytest.raises(YtResponseError, match=f'"{function}" is not supported by the embedded'):
        create(client, f"{tmp}/t", [SCHEMA[0], value])
