"""Rows of dynamic tables: what goes in, what comes out, what is refused and when."""

import math

import pytest
from yt import yson
from yt.wrapper import YsonFormat, YtResponseError

from tests.arrow_streams import stream_of
from tests.contract.tables import KEY, VALUE, create, refused
from tests.kinds import decimal, dict_of, listed, optional, struct, tuple_of


def value_table(client, path, **column):
    return create(client, path, [KEY, {"name": "v", **column}])


def lookup(client, path, *keys, **options):
    return list(client.lookup_rows(path, [{"k": key} for key in keys], **options))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", -128),
        ("int64", -(2**63)),
        ("int64", 2**63 - 1),
        ("uint8", yson.YsonUint64(255)),
        ("uint64", yson.YsonUint64(2**64 - 1)),
        ("double", -0.5),
        ("double", math.inf),
        ("float", 1.5),
        ("boolean", True),
        ("boolean", False),
        ("string", "text"),
        ("utf8", "строка"),
        ("json", '{"a": 1}'),
        ("date", yson.YsonUint64(18_000)),
        ("datetime", yson.YsonUint64(1_600_000_000)),
        ("timestamp", yson.YsonUint64(1_600_000_000_000_000)),
        ("interval", -5),
        ("date32", -10),
        ("timestamp64", -1),
        ("any", {"a": [1, 2.5, None, {"b": "c"}]}),
        ("any", "scalar"),
        ("any", 7),
        ("int64", None),
        ("any", None),
    ],
)
def test_value_comes_back_as_it_went_in(client, tmp, kind, value):
    """Every type keeps its values exactly, null included."""
    path = value_table(client, f"{tmp}/t", type=kind)
    client.insert_rows(path, [{"k": 1, "v": value}])
    ((row),) = lookup(client, path, 1)
    assert row["v"] == value
    if value is not None and kind != "any":
        assert isinstance(row["v"], type(value))


@pytest.mark.parametrize(
    ("attributes", "stored"),
    [({}, "entity"), ({"enable_null_to_yson_entity_conversion": False}, "null")],
    ids=["by default", "switched off"],
)
@pytest.mark.parametrize("update", [False, True], ids=["write", "update"])
@pytest.mark.only_over("http", "the C++ driver converts no nulls")
def test_null_of_an_any_column_is_stored_as_an_entity_unless_told(
    client, tmp, attributes, stored, update
):
    """A query takes an entity for a value; a column that is not mentioned is null either way."""
    schema = [KEY, VALUE, {"name": "x", "type": "any"}]
    table = create(client, f"{tmp}/t", schema)
    form = YsonFormat(attributes=attributes)
    rows = [{"k": 1, "v": "a", "x": None}, {"k": 2, "v": "b"}]
    client.insert_rows(table, rows, format=form, update=update)
    nulls = client.select_rows(f"k from [{table}] where is_null(x)")
    assert [row["k"] for row in nulls] == ([2] if stored == "entity" else [1, 2])
    assert [row["x"] for row in client.select_rows(f"x from [{table}]")] == [None, None]


def test_bytes_that_are_no_text_survive(client, tmp):
    """Strings are bytes."""
    path = value_table(client, f"{tmp}/t", type="string")
    blob = bytes(range(256))
    client.insert_rows(path, [{"k": 1, "v": blob}])
    rows = client.lookup_rows(path, [{b"k": 1}], format=YsonFormat(encoding=None))
    assert [row[b"v"] for row in rows] == [blob]


@pytest.mark.parametrize(
    ("type_v3", "value", "expected"),
    [
        (listed("int64"), [1, 2], [1, 2]),
        (struct(a="int64"), {"a": 1}, {"a": 1}),
        pytest.param(
            struct(a="int64"),
            [1],
            {"a": 1},
            marks=pytest.mark.only_over("http", "the C++ client takes fields by name only"),
        ),
        (tuple_of("int64", "string"), [1, "x"], [1, "x"]),
        (dict_of("string", "int64"), [["a", 1], ["b", 2]], [["a", 1], ["b", 2]]),
        ({"type_name": "variant", "members": [{"name": "a", "type": "int64"}]}, ["a", 1], ["a", 1]),
        (optional(listed("string")), None, None),
        (optional(optional("int64")), [None], [None]),
        ({"type_name": "tagged", "tag": "t", "item": "string"}, "x", "x"),
    ],
)
def test_composite_value_comes_back_in_its_named_form(client, tmp, type_v3, value, expected):
    """Structs are maps by field name, whichever way they came."""
    path = value_table(client, f"{tmp}/t", type_v3=type_v3)
    client.insert_rows(path, [{"k": 1, "v": value}])
    ((row),) = lookup(client, path, 1)
    assert row["v"] == expected


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ({"type": "int64"}, "x", 'expected "int64", actual "string"'),
        ({"type": "int64"}, 1.0, 'expected "int64", actual "double"'),
        ({"type": "double"}, 1, 'expected "double", actual "int64"'),
        ({"type": "string"}, 1, 'expected "string", actual "int64"'),
        ({"type": "boolean"}, 1, 'expected "boolean", actual "int64"'),
        ({"type": "int8"}, 128, "out of allowed range"),
        ({"type": "uint32"}, 2**32, "out of allowed range"),
        ({"type": "date"}, 49_673, "out of allowed range"),
        ({"type": "utf8"}, b"\xff", "Not a valid utf8 string"),
        ({"type": "json"}, "{", "Invalid JSON"),
        ({"type": "uuid"}, "short", "Not a valid Uuid"),
        ({"type_v3": listed("int64")}, ["x"], "Cannot parse"),
        ({"type_v3": decimal(5, 2)}, b"123", "invalid length"),
    ],
)
def test_value_of_the_wrong_type_is_found_at_the_commit(cluster, tmp, column, value, message):
    """The insert succeeds, the commit does not: rows are checked when they are sent to tablets."""
    client = cluster.client(proxy={"enable_proxy_discovery": False})
    path = value_table(client, f"{tmp}/t", **column)
    transaction = client.Transaction(type="tablet")
    transaction.__enter__()
    client.insert_rows(path, [{"k": 1, "v": value}])
    with pytest.raises(YtResponseError, match=message) as caught:
        transaction.__exit__(None, None, None)
    assert caught.value.error["code"] == 1
    assert caught.value.contains_code(307)
    assert f"Error preparing rows for table {path}" in str(caught.value)
    assert lookup(cluster.client(), path, 1) == []


@pytest.mark.parametrize(
    ("column", "row", "code", "message"),
    [
        ({"type": "int64"}, {"k": 1, "v": 1, "w": 2}, 307, 'No column "w"'),
        ({"type": "uint64"}, {"k": 1, "v": -1}, 307, "type conversion"),
        ({"type": "int64"}, {"k": 1, "v": yson.YsonUint64(2**63)}, 307, "type conversion"),
        ({"type": "any"}, {"k": 1, "v": yson.to_yson_type(1, {"a": 1})}, 1, "top-level attributes"),
    ],
)
def test_impossible_value_is_refused_at_the_insert(cluster, tmp, column, row, code, message):
    """What cannot even be parsed into the schema never reaches the transaction."""
    client = cluster.client(proxy={"enable_proxy_discovery": False})
    path = value_table(client, f"{tmp}/t", **column)
    with client.Transaction(type="tablet"):
        with refused(code, match=message):
            client.insert_rows(path, [row])
        client.insert_rows(path, [{"k": 2, "v": None}])
    assert lookup(cluster.client(), path, 1, 2) == [{"k": 2, "v": None}]


def test_integers_stand_in_for_each_other_when_they_fit(client, tmp):
    """Signedness of small numbers does not matter."""
    schema = [KEY, {"name": "i", "type": "int64"}, {"name": "u", "type": "uint64"}]
    path = create(client, f"{tmp}/t", schema)
    client.insert_rows(path, [{"k": 1, "i": yson.YsonUint64(5), "u": 6}])
    ((row),) = lookup(client, path, 1)
    assert (row["i"], row["u"]) == (5, 6)
    assert isinstance(row["u"], yson.YsonUint64)


@pytest.mark.parametrize("form", ["insert", "update"])
def test_null_in_a_required_column_is_refused(client, tmp, form):
    """Absent is null, and null is not allowed; an update has to mention the column."""
    path = value_table(client, f"{tmp}/t", type="string", required=True)
    row = {"k": 1} if form == "insert" else {"k": 1, "v": None}
    with refused(307) as caught:
        client.insert_rows(path, [row], update=form == "update")
    assert 'Required column "v" cannot have "null" value' in str(caught.value)


def test_repeated_key_in_one_request_takes_the_last_values(client, tmp):
    """Rows of one request act in their order, updates column by column."""
    path = create(client, f"{tmp}/t", [KEY, VALUE, {"name": "w", "type": "int64"}])
    client.insert_rows(path, [{"k": 1, "v": "a"}, {"k": 1, "v": "b"}])
    assert lookup(client, path, 1) == [{"k": 1, "v": "b", "w": None}]
    rows = [{"k": 1, "v": "c"}, {"k": 1, "w": 1}, {"k": 1, "v": "d"}]
    client.insert_rows(path, rows, update=True)
    assert lookup(client, path, 1) == [{"k": 1, "v": "d", "w": 1}]


def test_update_of_an_ordered_table_is_refused(client, tmp):
    """Queues only grow."""
    path = create(client, f"{tmp}/q", [VALUE])
    with pytest.raises(YtResponseError, match='Cannot use "update" mode for ordered tables'):
        client.insert_rows(path, [{"v": "x"}], update=True)


def test_deleted_row_is_gone_and_may_return(client, tmp):
    """A tombstone hides a row and its old values."""
    path = create(client, f"{tmp}/t", [KEY, VALUE, {"name": "w", "type": "int64"}])
    client.insert_rows(path, [{"k": 1, "v": "x", "w": 1}, {"k": 2, "v": "y"}])
    client.delete_rows(path, [{"k": 1}, {"k": 99}])
    assert lookup(client, path, 1) == []
    assert client.get(f"{path}/@row_count") == 1
    client.insert_rows(path, [{"k": 1, "w": 5}], update=True)
    assert lookup(client, path, 1) == [{"k": 1, "v": None, "w": 5}]


def test_lookup_answers_in_the_order_of_the_keys(client, tmp):
    """Missing rows are skipped, or null on request."""
    path = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": key, "v": str(key)} for key in range(4)])
    assert [row["k"] for row in lookup(client, path, 3, 7, 1, 3)] == [3, 1, 3]
    kept = lookup(client, path, 3, 7, keep_missing_rows=True)
    assert kept == [{"k": 3, "v": "3"}, None]
    assert lookup(client, path, 2, column_names=["v"]) == [{"v": "2"}]
    with pytest.raises(YtResponseError, match='No such column "zzz"'):
        lookup(client, path, 2, column_names=["zzz"])


@pytest.mark.parametrize(
    "values",
    [
        [None, -(2**63), -1, 0, 1, 2**63 - 1],
        [None, "", "\0", "\0\0", "\0a", "a", "a\0", "a\0b", "a\x01", "b"],
        [None, -math.inf, -1.5, -0.0, 1e-300, 2.0, math.inf],
        [None, False, True],
        [None, *map(yson.YsonUint64, (0, 1, 2**63 - 1, 2**63, 2**64 - 1))],
    ],
)
def test_rows_lie_in_the_order_of_their_keys(client, tmp, values):
    """Null comes first, then values in their natural order, second column included."""
    kinds = {int: "int64", str: "string", float: "double", bool: "boolean"}
    kinds[yson.YsonUint64] = "uint64"
    first = {"name": "a", "type": kinds[type(values[-1])], "sort_order": "ascending"}
    second = {**first, "name": "b"}
    path = create(client, f"{tmp}/t", [first, second, VALUE])
    keys = [{"a": left, "b": right} for left in values for right in values]
    client.insert_rows(path, [{**key, "v": "x"} for key in reversed(keys)])
    rows = client.select_rows(f"a, b from [{path}] order by a, b limit 1000")
    assert list(rows) == keys
    assert list(client.lookup_rows(path, keys[3:5], column_names=["a", "b"])) == keys[3:5]


def test_nan_key_is_refused(client, tmp):
    """NaN equals nothing, so it cannot name a row."""
    key = {"name": "k", "type": "double", "sort_order": "ascending"}
    path = create(client, f"{tmp}/t", [key, VALUE])
    with refused(325):
        client.insert_rows(path, [{"k": math.nan, "v": "x"}])


def test_string_over_the_limit_is_refused(client, tmp):
    """Dynamic tables hold strings up to 16 MiB; the error names the table too.

    Servers of 2023 say "too long for dynamic data".
    """
    path = create(client, f"{tmp}/t")
    with refused(326) as caught:
        client.insert_rows(path, [{"k": 1, "v": "x" * (16 * 2**20 + 1)}])
    assert f'"string" is too long: length {16 * 2**20 + 1}' in str(caught.value)
    assert path in str(caught.value)


@pytest.mark.parametrize(
    ("function", "kind", "given", "expected"),
    [
        ("sum", "int64", [1, None, 5], 6),
        ("sum", "double", [1.5, 2.0], 3.5),
        ("sum", "double", [1.5, math.nan], pytest.approx(math.nan, nan_ok=True)),
        ("min", "double", [1.5, math.nan], 1.5),
        ("max", "double", [1.5, math.nan], 1.5),
        ("min", "int64", [3, 1, 2], 1),
        ("max", "uint64", [yson.YsonUint64(2**64 - 1), yson.YsonUint64(5)], 2**64 - 1),
        ("max", "string", ["a", "c", "b"], "c"),
        ("first", "string", ["a", "b"], "a"),
    ],
)
def test_aggregate_column_combines_values(client, tmp, function, kind, given, expected):
    """With `aggregate` values combine; without it they replace."""
    path = value_table(client, f"{tmp}/t", type=kind, aggregate=function)
    for value in given:
        client.insert_rows(path, [{"k": 1, "v": value}], aggregate=True, update=True)
    ((row),) = lookup(client, path, 1)
    assert row["v"] == expected
    client.insert_rows(path, [{"k": 1, "v": given[0]}])
    ((row),) = lookup(client, path, 1)
    assert row["v"] == given[0]


def test_computed_key_column_is_filled_by_the_cluster(client, tmp):
    """Writing it is an error; lookups need not name it."""
    hashed = {**KEY, "name": "h", "type": "uint64", "expression": "farm_hash(k) % 8"}
    path = create(client, f"{tmp}/t", [hashed, KEY, VALUE])
    client.insert_rows(path, [{"k": key, "v": "x"} for key in range(5)])
    rows = lookup(client, path, 3)
    assert [(row["k"], row["v"]) for row in rows] == [(3, "x")]
    (hashed,) = client.select_rows(f"h, farm_hash(k) % 8 as expected from [{path}] where k = 3")
    assert hashed["h"] == hashed["expected"] == rows[0]["h"]
    with pytest.raises(YtResponseError, match='No column "h"'):
        client.insert_rows(path, [{"h": 1, "k": 1, "v": "x"}])
    client.delete_rows(path, [{"k": 3}])
    assert lookup(client, path, 3) == []


def test_read_at_a_timestamp_sees_the_past(client, tmp):
    """Replaced and deleted rows can be read for a while."""
    path = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": 1, "v": "old"}])
    moment = client.generate_timestamp()
    client.insert_rows(path, [{"k": 1, "v": "new"}, {"k": 2, "v": "y"}])
    client.delete_rows(path, [{"k": 1}])
    assert lookup(client, path, 1, 2) == [{"k": 2, "v": "y"}]
    assert lookup(client, path, 1, 2, timestamp=moment) == [{"k": 1, "v": "old"}]
    past = client.select_rows(f"* from [{path}]", timestamp=moment)
    assert list(past) == [{"k": 1, "v": "old"}]


def test_versioned_lookup_lists_every_version(client, tmp):
    """Values come newest first, deletions are moments of their own."""
    path = create(client, f"{tmp}/t")
    for value in ("first", "second"):
        client.insert_rows(path, [{"k": 1, "v": value}])
    moment = client.generate_timestamp()
    client.delete_rows(path, [{"k": 1}])
    client.insert_rows(path, [{"k": 1, "v": "third"}])
    (row,) = lookup(client, path, 1, versioned=True)
    assert row["k"] == 1
    assert [str(value) for value in row["v"]] == ["third", "second", "first"]
    stamps = [value.attributes["timestamp"] for value in row["v"]]
    assert row.attributes["write_timestamps"] == stamps == sorted(stamps, reverse=True)
    (deleted,) = row.attributes["delete_timestamps"]
    assert stamps[1] < moment < deleted < stamps[0]
    (before,) = lookup(client, path, 1, versioned=True, timestamp=moment)
    assert [str(value) for value in before["v"]] == ["second", "first"]
    assert before.attributes["delete_timestamps"] == []


def test_missing_and_static_tables_are_told_apart(client, tmp):
    """A path that leads nowhere is a resolve error inside, a static table is not dynamic."""
    with refused(500) as caught:
        client.insert_rows(f"{tmp}/nothing", [{"k": 1}])
    assert "Error getting mount info" in str(caught.value)
    client.create("table", f"{tmp}/static")
    with pytest.raises(YtResponseError, match="is not dynamic"):
        client.insert_rows(f"{tmp}/static", [{"k": 1}])


def test_arrow_rows_are_taken_and_unknown_columns_dropped(client, raw, tmp):
    """Arrow is lenient where YSON is strict."""
    import pyarrow as pa

    path = create(client, f"{tmp}/t", [KEY, VALUE, {"name": "d", "type": "double"}])
    batch = pa.record_batch(
        {"k": pa.array([1, 2]), "v": pa.array(["x", None]), "d": [0.5, 1.5], "more": [1, 2]}
    )
    parameters = {"path": path, "input_format": "arrow"}
    answer = raw.command("PUT", "insert_rows", parameters, stream_of(batch))
    assert (answer.status, answer.body) == (200, b"")
    assert lookup(client, path, 1, 2) == [
        {"k": 1, "v": "x", "d": 0.5},
        {"k": 2, "v": None, "d": 1.5},
    ]


@pytest.mark.parametrize("count", [1, 24, 25, 26, 51])
@pytest.mark.parametrize("width", [1, 3, 500, 1_000])
def test_rows_are_appended_in_order_whatever_their_number_and_width(client, tmp, count, width):
    """Some rows, some columns: each row has its own values, and the order is that of the request."""
    columns = [{"name": f"c{place}", "type": "int64"} for place in range(width)]
    path = create(client, f"{tmp}/t", columns)
    rows = [
        {f"c{place}": number * width + place for place in range(width)} for number in range(count)
    ]
    client.insert_rows(path, rows)
    pulled = list(client.pull_queue(path, 0, 0))
    assert [row.pop("$row_index") for row in pulled] == list(range(count))
    assert [{name: row[name] for name in rows[0]} for row in pulled] == rows


@pytest.mark.embedded_only("how many columns it keeps")
def test_table_of_more_columns_than_a_row_can_have_is_refused_in_words(client, tmp):
    """A schema of thousands of columns is told to be too wide here; nothing is left of the table."""
    wide = [{"name": f"c{place}", "type": "int64"} for place in range(2_500)]
    with pytest.raises(YtResponseError, match="up to 1900 columns"):
        create(client, f"{tmp}/t", wide)
    assert not client.exists(f"{tmp}/t")


@pytest.mark.parametrize("key", [{}, {"sort_order": "ascending"}], ids=["ordered", "sorted"])
def test_rows_that_lack_most_columns_are_stored(client, tmp, key):
    """As columns they are many times as large as the request; what they say is what is read."""
    numbers = [{"name": f"v{n}", "type": "int64"} for n in range(15)]
    path = create(client, f"{tmp}/t", [{"name": "k", "type": "int64", **key}, *numbers])
    client.insert_rows(path, [{"k": n, f"v{n % 15}": n + 1} for n in range(30_000)])
    for start in (0, 29_985):
        found = list(client.select_rows(f"* from [{path}] where k >= {start} and k < {start + 15}"))
        assert [row["k"] for row in found] == list(range(start, start + 15))
        assert all([row[f"v{n}"] for n in range(15)].count(None) == 14 for row in found)
        assert [row[f"v{row['k'] % 15}"] for row in found] == [row["k"] + 1 for row in found]


@pytest.mark.parametrize("kind", ["double", "float"])
def test_both_zeros_are_one_key(client, tmp, kind):
    """To writes, lookups, queries and deletes."""
    schema = [{"name": "k", "type": kind, "sort_order": "ascending"}, VALUE]
    path = create(client, f"{tmp}/t", schema)
    client.insert_rows(path, [{"k": -0.0, "v": "a"}])
    client.insert_rows(path, [{"k": 0.0, "v": "b"}])
    for zero in (0.0, -0.0):
        assert [row["v"] for row in lookup(client, path, zero)] == ["b"]
        for condition in (f"k = {zero}", f"k in ({zero})", f"k between {zero} and {-zero}"):
            found = client.select_rows(f"v from [{path}] where {condition}")
            assert [row["v"] for row in found] == ["b"]
        for condition in (f"k < {zero}", f"k > {zero}"):
            assert not list(client.select_rows(f"v from [{path}] where {condition}"))
    client.insert_rows(path, [{"k": 0.0, "v": "c"}, {"k": -0.0, "v": "d"}])
    assert [row["v"] for row in client.select_rows(f"v from [{path}]")] == ["d"]
    client.delete_rows(path, [{"k": 0.0}])
    assert not list(client.select_rows(f"v from [{path}]"))
