"""Paths with columns in braces: which rows go to which table, and which values name none."""

import datetime as dt
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from yt_exactly_once import advice
from yt_exactly_once.codec import path_pattern
from yt_exactly_once.codec.path_pattern import PathPattern, beside
from yt_exactly_once.errors import ConfigError

ORDERS = PathPattern("//home/{shop}/orders")


def dealt(pattern, taken=(), **columns):
    """Return the rows of each table, and why others name none."""
    rows = pa.record_batch(columns)
    found = pattern.deal(rows, taken)
    tables = {path: indexes.tolist() for path, indexes in found.tables.items()}
    return tables, {fault.row: (fault.column, fault.reason) for fault in found.faults}


def test_rows_keep_their_order_in_each_table():
    """As a loop over the rows would deal them: by several columns too, whatever names have in common."""
    pattern = PathPattern("//t/{a}_{b}/x{a}")
    values = np.random.default_rng(1).integers(0, 12, (2, 5_000))
    names = [f"{'ab_'[one % 3]}{one}" for one in values[0]], [f"_{one}" for one in values[1]]
    wanted = defaultdict(list)
    for row, (a, b) in enumerate(zip(*names, strict=True)):
        wanted[f"//t/{a}_{b}/x{a}"].append(row)

    assert dealt(pattern, a=names[0], b=names[1]) == (wanted, {})


def test_many_values_of_many_columns_are_told_apart():
    """Their combinations are more than a number of 64 bits can count."""
    names = [str(number) for number in range(1 << 13)]
    first, others = [*names, names[1 << 12]], [*names, names[0]]
    tables, _ = dealt(
        PathPattern("//t/{a}/{b}/{c}/{d}/{e}"), a=first, **dict.fromkeys("bcde", others)
    )
    assert len(tables) == len(first)


def test_tables_that_two_pairs_of_values_name_are_one():
    tables, _ = dealt(PathPattern("//t/{a}_{b}"), a=["x_y", "x", "x_y"], b=["z", "y_z", "z"])
    assert tables == {"//t/x_y_z": [0, 1, 2]}


@pytest.mark.parametrize(("column", "names"), [
    (pa.array([7, -1], pa.int16()), ["7", "-1"]),
    (pa.array([2**64 - 1, 0], pa.uint64()), ["18446744073709551615", "0"]),
    (pa.array([dt.date(2026, 11, 2)] * 2), ["2026-11-02"]),
    (pa.array(["ä b", "x..y"], pa.large_string()), ["ä b", "x..y"]),
    (pa.array(["#1", "$a%"]), ["#1", "$a%"]),
])  # fmt: skip
def test_value_is_a_name(column, names):
    tables, faults = dealt(ORDERS, shop=column)
    assert list(tables) == [f"//home/{name}/orders" for name in names]
    assert faults == {}


@pytest.mark.parametrize(("value", "reason"), [
    (None, "it is null"),
    ("", "it is empty"), (" ", "it is empty"), ("a ", "with a space"),
    ("..", "dots alone"), (".", "dots alone"),
    ("a/b", "the character /"), ("../x", "the character /"), ("a\\/b", "the character \\"),
    ("a@", "the character @"), ("a&", "the character &"), ("*", "the character *"),
    ("a[1]", "the character ["), ("a{b}", "the character {"),
    ("a\nb", "a control character"), ("a\u202eb", "a control character"), ("\x00", "a control character"),
    ("x" * 257, "longer than 256 bytes"), ("ä" * 129, "longer than 256 bytes"),
    ("ours", "the sink or its query uses"),
])  # fmt: skip
def test_value_names_no_table(value, reason):
    """A value stays in its folder, and names nothing that is used otherwise; other rows are dealt."""
    tables, faults = dealt(ORDERS, {"//home/ours/orders"}, shop=["a", value, "b"])
    assert tables == {"//home/a/orders": [0], "//home/b/orders": [2]}
    assert list(faults) == [1]
    column, text = faults[1]
    assert column == "shop"
    assert reason in text
    assert value is None or len(value) < 3 or value not in text, "no error shows a value"


def test_bytes_that_are_no_text_name_no_table():
    text = pa.array([b"a", b"\xff"]).view(pa.string())
    assert dealt(ORDERS, shop=text)[1] == {1: ("shop", "shop names no table: it is no UTF-8")}


def test_each_value_is_looked_at_once(monkeypatch):
    """A million rows cost Python as much as one row of each table."""
    seen = []
    monkeypatch.setattr(path_pattern, "_name", lambda value: (seen.append(value) or str(value), ""))
    tables, _ = dealt(ORDERS, shop=np.arange(1_000_000) % 200)
    assert sorted(seen) == list(range(200))
    assert {len(rows) for rows in tables.values()} == {5_000}


@pytest.mark.parametrize("path", [
    "//home/{shop", "//home/shop}", "//home/{}/orders", "//{shop}/orders", "//home/{a}{", "//home/{{a}}",
])  # fmt: skip
def test_braces_belong_to_columns_below_a_folder(path):
    with pytest.raises(ConfigError, match="no path with columns in braces"):
        PathPattern.of(path)


def test_path_without_braces_is_no_pattern():
    assert PathPattern.of("//home/orders") is None
    assert PathPattern.of("//home/orders\\{1\\}") is None, "a node may have braces in its name"


@pytest.mark.parametrize(("path", "is_covered"), [
    ("//home/a/orders", True), ("//home/a.b/orders", True), ("//home/a\n/orders", True),
    ("//home/a/b/orders", False), ("//home//orders", False), ("//home/a/orders2", False), ("//home/a", False),
])  # fmt: skip
def test_pattern_covers_what_a_row_may_name(path, is_covered):
    assert ORDERS.covers(path) is is_covered


@pytest.mark.parametrize(("schema", "has"), [
    (pa.schema([("other", pa.string())]), "no such column"),
    (pa.schema([("shop", pa.float64())]), "double"),
    (pa.schema([("shop", pa.binary())]), "binary"),
    (pa.schema([("shop", pa.bool_())]), "bool"),
])  # fmt: skip
def test_column_of_a_path_is_refused_before_the_first_row(schema, has):
    with pytest.raises(ConfigError, match=f"names its tables by shop, and the DataFrame .*{has}"):
        ORDERS.require_columns(schema)


def test_advice_has_a_path_as_a_shell_takes_it():
    """Braces are quoted."""
    assert advice.audit("//home/{x}") == "yt-exactly-once audit '//home/{x}'"


def test_tables_of_the_sink_are_in_the_folder_of_all_tables():
    assert beside(["//home/b/{x}", "//home/b/{x}/y"], "ledger") == "//home/b/yt_exactly_once_ledger"
    assert beside(["//home/b", "//home/a"], "ledger") == "//home/a_ledger"
