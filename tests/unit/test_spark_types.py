"""Spark's DDL and JSON of schemas, read without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from yt_exactly_once.errors import ConfigError, SchemaMismatchError
from yt_exactly_once.operations.spark_types import parse_ddl, parse_schema


def fields(text):
    return [(one["name"], one["type"], one["nullable"]) for one in parse_ddl(text)["fields"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id bigint", [("id", "long", True)]),
        ("ID: INT NOT NULL COMMENT 'it''s', b Byte", [("ID", "integer", False), ("b", "byte", True)]),
        ("`a``b c` dec, n numeric(5), m decimal ( 4 , 2 )", [
            ("a`b c", "decimal(10,0)", True), ("n", "decimal(5,0)", True), ("m", "decimal(4,2)", True),
        ]),
        ('s string comment "x" not null, c char(3), v varchar(9)', [
            ("s", "string", False), ("c", "char(3)", True), ("v", "varchar(9)", True),
        ]),
        ("t timestamp_ltz, i interval day to second, j interval hour", [
            ("t", "timestamp", True),
            ("i", "interval day to second", True),
            ("j", "interval hour", True),
        ]),
    ],
)  # fmt: skip
def test_columns_are_read(text, expected):
    """Names in any case, with or without a colon."""
    assert fields(text) == expected


def test_nested_types_are_read():
    """To any depth; only members of structs can be NOT NULL."""
    text = "a array<map<string, struct<x: int not null comment 'y', z struct<>>>>"
    (field,) = parse_schema(text)
    inner = field.type.value_type.item_type
    assert pa.types.is_map(field.type.value_type)
    assert [(one.name, one.nullable) for one in inner] == [("x", False), ("z", True)]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "expected a name at the end"),
        ("id", "expected a type at the end"),
        ("id thing", "unknown type thing"),
        ("id bigint name string", "expected ',', NOT NULL or COMMENT, found 'name'"),
        ("id bigint,", "expected a name at the end"),
        ("a array<int", "expected '>' at the end"),
        ("a map<int>", "expected ',', found '>'"),
        ("a decimal(39)", r"decimal\(39,0\) is out of range"),
        ("a decimal(x)", "'x' is no number"),
        ("a decimal(1,2,3)", "decimal"),
        ("a int comment 5", "expected a text in quotes"),
        ("a int not zero", "expected 'null', found 'zero'"),
        ("a int; drop", "unexpected '; drop'"),
        ("{}", ""),
        ('{"type": "struct"}', ""),
        ('{"type": "struct", "fields": [{"name": "a", "type": "wide", "nullable": true}]}', ""),
    ],
)
def test_what_is_no_schema_is_refused_with_the_place(text, where):
    """The message quotes what was found."""
    with pytest.raises(ConfigError, match=f"not the schema of a DataFrame.*{where}"):
        parse_schema(text)


@pytest.mark.parametrize("kind", ["timestamp_ntz", "variant", "interval year to month"])
def test_type_without_a_counterpart_is_refused(kind):
    """As it is when Spark gives the schema."""
    with pytest.raises(SchemaMismatchError, match="No column type of YTsaurus holds"):
        parse_schema(f"a {kind}")
