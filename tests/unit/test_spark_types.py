"""Spark's JSON of a schema, and lists of columns, read without Spark."""

import json

import pyarrow as pa
import pytest

from tests.kinds import optional
from yt_exactly_once.codec.scalars import SCALARS
from yt_exactly_once.codec.schema import table_schema_for
from yt_exactly_once.codec.spark_types import document_from, parse_columns, parse_schema
from yt_exactly_once.errors import ConfigError, SchemaMismatchError
from yt_exactly_once.operations.columns import parse_kind


def fields(text):
    return [(one["name"], one["type"], one["nullable"]) for one in parse_columns(text)["fields"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id bigint", [("id", "long", True)]),
        ("ID: INT NOT NULL, b Byte", [("ID", "integer", False), ("b", "byte", True)]),
        ("`a``b c` dec, n numeric(5), m decimal ( 4 , 2 )", [
            ("a`b c", "decimal(10,0)", True), ("n", "decimal(5,0)", True), ("m", "decimal(4,2)", True),
        ]),
        ("s string not null, c char(3), v varchar(9), t timestamp_ltz", [
            ("s", "string", False), ("c", "char(3)", True), ("v", "varchar(9)", True),
            ("t", "timestamp", True),
        ]),
    ],
)  # fmt: skip
def test_columns_are_read(text, expected):
    """Names in any case, with or without a colon."""
    assert fields(text) == expected
    assert parse_schema(text).names == [name for name, *_ in expected]


def test_nested_columns_are_read():
    """Structs and arrays in any depth, with what may be null; comments are left out."""
    text = """
        tags ARRAY<STRING> NOT NULL COMMENT 'it''s one',
        sums map<string, decimal(5,2)>,
        place struct<x: int NOT NULL comment "a, b>", `y z` double, at array<struct<t:timestamp>>>
    """
    at = {"name": "t", "type": "timestamp", "nullable": True}
    ats = {"type": "array", "elementType": {"type": "struct", "fields": [at]}, "containsNull": True}
    members = [
        {"name": "x", "type": "integer", "nullable": False},
        {"name": "y z", "type": "double", "nullable": True},
        {"name": "at", "type": ats, "nullable": True},
    ]
    assert fields(text) == [
        ("tags", {"type": "array", "elementType": "string", "containsNull": True}, False),
        (
            "sums",
            {
                "type": "map",
                "keyType": "string",
                "valueType": "decimal(5,2)",
                "valueContainsNull": True,
            },
            True,
        ),
        ("place", {"type": "struct", "fields": members}, True),
    ]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "column 1 ends too soon"),
        ("id", "column 1 ends too soon"),
        ("id bigint name string", "column 1 is not understood from 'name string' on"),
        ("id bigint,", "column 2 ends too soon"),
        ("id bigint,, b int", "column 2 is not understood from ', b int' on"),
        ("id int, a array<int", "column 2 ends too soon.*df.schema.json"),
        ("a array int", "column 1 is not understood from 'int' on"),
        ("a map<int>", "column 1 is not understood from '>' on"),
        ("a struct<x int,>", "column 1 is not understood from '>' on"),
        ("a struct<x int y int>", "column 1 is not understood from 'y int>' on"),
        ("id int, a array<thing>", "column 2 has the unknown type thing"),
        ("id thing", "unknown type thing"),
        ("a decimal(39)", r"decimal\(39\) is out of range"),
        ("a decimal(2, 3)", r"decimal\(2, 3\) is out of range"),
        ("a decimal(x)", "column 1"),
        ("a decimal(1,2,3)", "column 1"),
        ("a int not zero", "column 1"),
        ("a int; drop", "column 1"),
        ("{}", ""),
        ('{"type": "struct"}', ""),
        ('{"type": "struct", "fields": [{"name": "a", "nullable": true}]}', ""),
    ],
)
def test_what_is_no_schema_is_refused_with_the_place(text, where):
    """The message quotes what was found."""
    with pytest.raises(ConfigError, match=f"not the schema of a DataFrame.*{where}"):
        parse_schema(text)


def test_local_times_of_a_schema_are_instants():
    """At any depth; a column may be called so."""
    inner = {
        "type": "map",
        "keyType": "string",
        "valueType": "timestamp_ntz",
        "valueContainsNull": True,
    }
    kinds = ["timestamp_ntz", {"type": "array", "elementType": inner, "containsNull": True}]
    text = json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True}
                for name, kind in zip(("timestamp_ntz", "b"), kinds, strict=True)
            ],
        }
    )
    instant = pa.timestamp("us", tz="UTC")
    assert parse_schema(text) == pa.schema(
        [
            ("timestamp_ntz", instant),
            ("b", pa.list_(pa.field("element", pa.map_(pa.string(), instant)))),
        ]
    )


def test_type_without_a_counterpart_is_refused():
    """As it is when Spark gives the schema."""
    with pytest.raises(SchemaMismatchError, match="No column type of YTsaurus holds"):
        parse_schema("a array<variant>")


def test_variant_is_json():
    """A table that is made for it has a column json."""
    schema = parse_schema("a variant NOT NULL, b variant")
    assert [each["type_v3"] for each in table_schema_for(schema)] == ["json", optional("json")]
    fields = document_from(schema)["fields"]
    assert [(each["type"], each["nullable"]) for each in fields] == [
        ("variant", False),
        ("variant", True),
    ]
    assert parse_kind("a", "variant") == SCALARS["json"]
