"""Modes of the YSON format: what rows look like in a request that asks for another spelling."""

from __future__ import annotations

import json

import pytest
import yt.wrapper as yt
from yt import yson

DECIMAL = {"type_name": "decimal", "precision": 5, "scale": 4}
STRUCT = {
    "type_name": "struct",
    "members": [{"name": "a", "type": "date"}, {"name": "b", "type": DECIMAL}],
}
VARIANT = {**STRUCT, "type_name": "variant"}
DICT = {"type_name": "dict", "key": "string", "value": "uuid"}
DAY = yson.YsonUint64(1)
PI = b"\x80\x00\x7a\xb7"
UUID = bytes.fromhex("01102030405060708090a0b0c0d0e0f0")


@pytest.fixture
def table(client, tmp):
    """Return a function that creates a table of one column."""

    def create(type_v3):
        schema = [{"name": "v", "type_v3": type_v3}]
        client.create("table", f"{tmp}/t", force=True, attributes={"schema": schema})
        return f"{tmp}/t"

    return create


@pytest.mark.parametrize(
    ("type_v3", "mode", "shown", "stored"),
    [
        (DECIMAL, {"decimal_mode": "text"}, "3.1415", PI),
        (DECIMAL, {"decimal_mode": "text"}, "-inf", b"\x00\x00\x00\x02"),
        ("date", {"time_mode": "text"}, "2021-07-02", 18810),
        ("datetime", {"time_mode": "text"}, "2021-07-02T16:18:40Z", 1625242720),
        ("timestamp", {"time_mode": "text"}, "2021-07-02T16:18:40.123456Z", 1625242720123456),
        ("uuid", {"uuid_mode": "text_yt"}, "1102030-40506070-8090a0b0-c0d0e0f0", UUID),
        ("uuid", {"uuid_mode": "text_yql"}, "30201001-5040-7060-8090-a0b0c0d0e0f0", UUID),
        (STRUCT, {"complex_type_mode": "positional"}, [DAY, PI], {"a": DAY, "b": PI}),
        (VARIANT, {"complex_type_mode": "positional"}, [1, PI], ["b", PI]),
        (DICT, {"string_keyed_dict_mode": "named"}, {"x": UUID}, [["x", UUID]]),
        (
            {"type_name": "list", "item": {"type_name": "optional", "item": STRUCT}},
            {"complex_type_mode": "positional", "decimal_mode": "text", "time_mode": "text"},
            [["1970-01-02", "3.1415"], None],
            [{"a": 1, "b": PI}, None],
        ),
    ],
    ids=lambda value: json.dumps(value, default=str)[:40],
)
def test_modes_change_the_spelling_and_nothing_else(client, table, type_v3, mode, shown, stored):
    """In both directions: what is written in a mode is stored plainly, and read back in the mode."""
    path = table(type_v3)
    spelled = yt.YsonFormat(attributes=mode)
    client.write_table(path, [{"v": shown}], format=spelled)
    plain = yt.YsonFormat(encoding=None)
    (row,) = client.read_table(path, format=plain)
    assert _text(row[b"v"]) == _text(stored)
    (row,) = client.read_table(path, format=yt.YsonFormat(encoding=None, attributes=mode))
    assert _text(row[b"v"]) == _text(shown)


def _text(value):
    """Return a value with every string as bytes."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        return {_text(key): _text(item) for key, item in value.items()}
    return [_text(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("type_v3", "mode", "value"),
    [
        (DECIMAL, {"decimal_mode": "text"}, "31.415"),
        (DECIMAL, {"decimal_mode": "text"}, "3.14159"),
        ("date", {"time_mode": "text"}, "1970-13-01"),
        ("date", {"time_mode": "text"}, 42),
        ("uuid", {"uuid_mode": "text_yql"}, "1102030-40506070-8090a0b0-c0d0e0f0"),
        (STRUCT, {"complex_type_mode": "positional"}, {"a": 1, "b": PI}),
        (VARIANT, {"complex_type_mode": "positional"}, ["b", PI]),
        ("date", {"time_mode": "roman"}, 1),
    ],
    ids=lambda value: json.dumps(value, default=str)[:40],
)
def test_other_spellings_are_refused(client, table, type_v3, mode, value):
    """So is a mode that does not exist."""
    path = table(type_v3)
    with pytest.raises(yt.YtResponseError):
        client.write_table(path, [{"v": value}], format=yt.YsonFormat(attributes=mode))


def test_rows_of_dynamic_tables_know_modes_and_skipped_nulls(client, tmp):
    """Lookups as well as `read_table`."""
    schema = [
        {"name": "k", "type": "date", "sort_order": "ascending"},
        {"name": "v", "type": "int64"},
    ]
    client.create("table", f"{tmp}/d", attributes={"dynamic": True, "schema": schema})
    client.mount_table(f"{tmp}/d", sync=True)
    spelled = yt.YsonFormat(attributes={"time_mode": "text", "skip_null_values": True})
    client.insert_rows(f"{tmp}/d", [{"k": "1970-01-03"}], format=spelled)
    assert list(client.select_rows(f"* from [{tmp}/d]")) == [{"k": 2, "v": None}]
    key = [{"k": "1970-01-03"}]
    assert list(client.lookup_rows(f"{tmp}/d", key, format=spelled)) == key
