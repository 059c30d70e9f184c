"""Lists unrolled by ARRAY JOIN, and members of structs, tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from yt.yson import YsonUint64

from tests.local.ql_tables import Tables, columns, key_columns


def optional(item: Any) -> dict[str, Any]:
    return {"type_name": "optional", "item": item}


def list_of(item: Any) -> dict[str, Any]:
    return {"type_name": "list", "item": item}


def struct(**members: Any) -> dict[str, Any]:
    described = [{"name": name, "type": kind} for name, kind in members.items()]
    return {"type_name": "struct", "members": described}


def column(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type_v3": kind}


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    found = Tables()
    found.create(
        "//t",
        [
            *key_columns(key="int64"),
            column("A", optional(list_of("int64"))),
            column("B", list_of("string")),
        ],
        [
            {"key": 1, "A": [1, 2, 3], "B": [b"1", b"2", b"3"]},
            {"key": 2, "A": [5, 6], "B": [b"5"]},
            {"key": 3, "A": [7], "B": [b"7", b"8"]},
            {"key": 4, "A": None, "B": []},
        ],
    )
    found.create(
        "//other",
        [*key_columns(key="int64"), column("C", list_of(optional("int64")))],
        [{"key": 1, "C": [1, None]}, {"key": 2, "C": [5]}, {"key": 3, "C": []}],
    )
    pair = {"type_name": "tuple", "elements": [{"type": "double"}, {"type": list_of("bool")}]}
    found.create(
        "//parts",
        [
            *key_columns(key="int64"),
            column("s", struct(a="int16", inner=struct(u="uint64", text=optional("utf8")))),
            column("p", pair),
            column("d", {"type_name": "dict", "key": "string", "value": "int64"}),
            column("l", list_of(struct(x="int64"))),
            column("o", optional(struct(a="int64"))),
            *columns(y="any", i="int64"),
        ],
        [
            {
                "key": key,
                "s": {"a": key, "inner": {"u": YsonUint64(2**64 - key), "text": text}},
                "p": [key / 2, [True, False]],
                "d": [[b"one", 1], [b"key", key]],
                "l": [{"x": key}],
                "o": {"a": 1},
                "y": [1],
                "i": key - 1,
            }
            for key, text in ((1, b"t"), (2, None))
        ],
    )
    yield found
    found.close()


def test_lists_are_unrolled_side_by_side(tables: Tables) -> None:
    """A shorter list is filled up with nulls; a row without items is dropped, or kept by LEFT."""
    query = "key, a, b from [//t] {} join A as a, B as b limit 100"
    flat = [
        *((1, 1, b"1"), (1, 2, b"2"), (1, 3, b"3")),
        *((2, 5, b"5"), (2, 6, None)),
        *((3, 7, b"7"), (3, None, b"8")),
    ]
    rows = [dict(zip(("key", "a", "b"), row, strict=True)) for row in flat]
    assert tables.select(query.format("array")) == rows
    rows.append({"key": 4, "a": None, "b": None})
    assert tables.select(query.format("left array")) == rows


def test_array_joins_multiply(tables: Tables) -> None:
    """Two clauses make every pair of items."""
    found = tables.select("key, a, b from [//t] array join A as a array join B as b limit 100")
    assert [(row["key"], row["a"], row["b"]) for row in found] == [
        *((1, a, b) for a in (1, 2, 3) for b in (b"1", b"2", b"3")),
        *((2, 5, b"5"), (2, 6, b"5"), (3, 7, b"7"), (3, 7, b"8")),
    ]


def test_array_joins_mix_with_table_joins(tables: Tables) -> None:
    """Each join sees the columns before it, in the order of the text."""
    query = (
        "L.key, b, c from [//t] as L array join L.B as b "
        "join [//other] as R on L.key = R.key array join R.C as c limit 100"
    )
    found = tables.select(query)
    assert [(row["L.key"], row["b"], row["c"]) for row in found] == [
        *((1, b, c) for b in (b"1", b"2", b"3") for c in (1, None)),
        (2, b"5", 5),
    ]
    by_item = "key, c from [//other] array join C as c join [//t] using key where c > 1"
    assert tables.select(by_item) == [{"key": 2, "c": 5}]


def test_items_are_columns_like_others(tables: Tables) -> None:
    """They are compared, grouped, ordered and joined on; `*` shows them last."""
    assert tables.column("key from [//t] array join A as a where a in (2, 6)") == [1, 2]
    assert tables.column("key from [//t] array join A as a and a > 2 where key < 3") == [1, 2, 2]
    left = "key, a from [//t] left array join A as a and a > 6"
    assert [row["a"] for row in tables.select(left)] == [None, None, 7, None]
    totals = "sum(a) as s from [//t] array join A as a group by key % 2 as odd"
    assert sorted(tables.column(totals)) == [11, 13]
    ordered = "a from [//t] array join A as a order by a desc limit 3"
    assert tables.column(ordered) == [7, 6, 5]
    (row,) = tables.select("* from [//other] array join C as c where key = 2")
    assert list(row) == ["key", "C", "c"]
    joined = "a, o.key from [//t] as t array join t.A as a join [//other] as o on a = o.key"
    assert [row["a"] for row in tables.select(joined)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("a from [//t] array join key as a", "Expected a list-like type expression"),
        ("a from [//parts] array join y as a", "Expected a list-like type expression"),
        ("a from [//parts] array join s as a", "Expected a list-like type expression"),
        ("key from [//t] array join A as key", "Ambiguous resolution"),
        ("a from [//t] array join A", "syntax error"),
        ("a from [//t] array join A as a and key = 1", "Undefined reference"),
    ],
)
def test_wrong_array_join_is_refused(tables: Tables, query: str, message: str) -> None:
    """Only lists can be unrolled, under new names."""
    assert message in tables.refusal(query).message


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        ("s.a", [1, 2]),
        ("s.inner.u", [2**64 - 1, 2**64 - 2]),
        ("s.inner.text", [b"t", None]),
        ("s.inner", [{b"u": 2**64 - 1, b"text": b"t"}, {b"u": 2**64 - 2, b"text": None}]),
        ("p.0", [0.5, 1.0]),
        ("p.1[0]", [True, True]),
        ("p.1[t.i]", [True, False]),
        ("p.1[2]", [None, None]),
        ('d["key"]', [1, 2]),
        ('d["none"]', [None, None]),
        ("l[0]", [{b"x": 1}, {b"x": 2}]),
    ],
)
def test_members_of_composite_columns(tables: Tables, member: str, expected: list[Any]) -> None:
    """A path leads through structs and tuples, brackets into a list or a dict."""
    found = tables.select(f"t.{member} from `//parts` as t", syntax_version=2)
    assert [value for row in found for value in row.values()] == expected
    alias = tables.select(f"t.{member} as x from `//parts` as t limit 10", syntax_version=2)
    assert [row["x"] for row in alias] == expected


def test_member_is_named_by_its_path_and_can_be_computed_with(tables: Tables) -> None:
    """It has the type of the schema."""
    (row,) = tables.select("t.s.a, t.s.inner.u + 1u as u from [//parts] as t where t.s.a = 2")
    assert row == {"t.s.a": 2, "u": 2**64 - 1}
    assert isinstance(row["u"], YsonUint64)
    grouped = "sum(t.s.a) as x from [//parts] as t group by t.p.0 > 0.5 as k"
    assert sorted(tables.column(grouped)) == [1, 2]
    unrolled = "x from `//parts` as t array join t.p.1 as x"
    assert tables.column(unrolled, syntax_version=2) == [True, False] * 2


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("s.b", 'Member "b" is not found'),
        ("s.0", 'Member "0" is not found'),
        ("p.2", 'Member "2" is not found'),
        ("o.a", 'Member "a" is not found'),
        ("i.a", 'Member "a" is not found'),
        ("s[0]", "Incorrect nested item accessor"),
        ("y[0]", "Incorrect nested item accessor"),
        ('l["x"]', "Incorrect type inside of the list or dict item accessor"),
        ("l[0, 1]", "syntax error"),
        ("p.1.5", 'Member "5" is not found'),
    ],
)
def test_member_that_is_not_there_is_refused(tables: Tables, member: str, message: str) -> None:
    """The schema decides, not the value."""
    error = tables.refusal(f"t.{member} from `//parts` as t", syntax_version=2)
    assert message in error.message
