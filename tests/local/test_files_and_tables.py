"""Files and static tables: written and read whole, in parts, by range, in every format."""

import json

import pytest
import yt.wrapper as yt
from yt import yson

from tests.contract.tables import columns, create, key_columns

SORTED = [*key_columns(k="int64", s="utf8"), *columns(v="any")]


def _failure(call, *args, **kwargs):
    with pytest.raises(yt.YtResponseError) as caught:
        call(*args, **kwargs)
    return caught.value


def test_file_round_trip(client, tmp):
    """What is written is read, byte for byte; the client splits, and appends in nested transactions."""
    client.config["write_retries"]["chunk_size"] = 400_000
    data = bytes(range(256)) * 5000
    client.write_file(f"{tmp}/f", data)
    assert client.read_file(f"{tmp}/f").read() == data
    assert client.get(f"{tmp}/f/@chunk_count") > 1
    assert client.get(f"{tmp}/f/@uncompressed_data_size") == len(data)
    assert client.get(f"{tmp}/f/@type") == "file"


def test_part_of_a_file(client, tmp):
    """Offset and length cut across the pieces it was written in."""
    client.write_file(f"{tmp}/f", b"hello ")
    client.write_file(f"<append=%true>{tmp}/f", b"world")
    assert client.read_file(f"{tmp}/f").read() == b"hello world"
    assert client.read_file(f"{tmp}/f", offset=4, length=4).read() == b"o wo"
    assert client.read_file(f"{tmp}/f", offset=11).read() == b""


@pytest.mark.parametrize("command", ["read_file", "read_table"])
def test_wrong_type_is_refused(raw, tmp, command):
    """A map is neither file nor table."""
    answer = raw.command("GET", command, {"path": tmp})
    assert answer.status == 400
    assert "Invalid type" in answer.error["message"]
    assert raw.command("GET", command, {"path": f"{tmp}/missing"}).error["code"] == 500


def test_table_without_a_schema_takes_any_row(client, tmp):
    """Rows of different shapes keep them, YSON tells signed from unsigned and text from bytes."""
    rows = [
        {"a": 1},
        {"b": "x", "c": [1, {"d": None}]},
        {},
        {"u": yson.YsonUint64(5), "b": b"\xff"},
    ]
    client.write_table(f"{tmp}/t", rows)
    *read, last = client.read_table(f"{tmp}/t")
    assert read == rows[:3]
    assert (type(last["u"]), yson.get_bytes(last["b"])) == (yson.YsonUint64, b"\xff")
    assert client.get(f"{tmp}/t/@schema_mode") == "weak"
    assert not client.get(f"{tmp}/t/@dynamic")
    assert client.row_count(f"{tmp}/t") == 4


def test_schema_is_enforced(client, tmp):
    """Unknown columns and wrong types are refused before anything is written."""
    client.create("table", f"{tmp}/t", attributes={"schema": [{"name": "a", "type": "int64"}]})
    client.write_table(f"{tmp}/t", [{"a": 1}, {}])
    assert list(client.read_table(f"{tmp}/t")) == [{"a": 1}, {"a": None}]
    assert _failure(client.write_table, f"{tmp}/t", [{"zz": 1}]).contains_code(307)
    assert _failure(client.write_table, f"{tmp}/t", [{"a": "x"}]).contains_code(307)
    assert client.row_count(f"{tmp}/t") == 2


def test_sorted_table_keeps_its_order(client, tmp):
    """Rows out of order are refused, inside a write and between writes."""
    client.create("table", f"{tmp}/t", attributes={"schema": SORTED})
    assert client.get(f"{tmp}/t/@sorted")
    assert client.get(f"{tmp}/t/@key_columns") == ["k", "s"]
    client.write_table(f"{tmp}/t", [{"k": 1, "s": "a"}, {"k": 1, "s": "b"}])
    unordered = [{"k": 3, "s": "a"}, {"k": 2, "s": "a"}]
    assert _failure(client.write_table, f"<append=%true>{tmp}/t", unordered).contains_code(301)
    early = [{"k": 0, "s": "a"}]
    assert _failure(client.write_table, f"<append=%true>{tmp}/t", early).contains_code(301)
    client.write_table(f"<append=%true>{tmp}/t", [{"k": 1, "s": "c"}])
    assert client.row_count(f"{tmp}/t") == 3


def test_key_columns_of_a_sorted_table_are_shown(client, tmp):
    """Under both names that clients ask for; an unsorted table has only an empty list of them."""
    client.write_table(yt.TablePath(f"{tmp}/sorted", sorted_by=["a"], client=client), [{"a": 1}])
    assert client.get(f"{tmp}/sorted/@sorted_by") == client.get(f"{tmp}/sorted/@key_columns")
    client.write_table(f"{tmp}/plain", [{"a": 1}])
    assert client.get(f"{tmp}/plain/@key_columns") == []
    assert not client.exists(f"{tmp}/plain/@sorted_by")


def test_unique_keys_are_unique(client, tmp):
    """The second row with a key is refused."""
    schema = yson.to_yson_type(SORTED, attributes={"unique_keys": True})
    client.create("table", f"{tmp}/t", attributes={"schema": schema})
    twice = [{"k": 1, "s": "a"}, {"k": 1, "s": "a"}]
    assert _failure(client.write_table, f"{tmp}/t", twice).contains_code(306)


@pytest.fixture
def numbers(client, tmp):
    path = yt.TablePath(f"{tmp}/numbers", attributes={"schema": SORTED})
    client.write_table(path, [{"k": n // 2, "s": str(n), "v": n} for n in range(20)])
    return f"{tmp}/numbers"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("[#3:#6]", [3, 4, 5]),
        ("[#18:]", [18, 19]),
        ("[:#2]", [0, 1]),
        ("[#5]", [5]),
        ("[#5,#1:#3]", [5, 1, 2]),
        ("[#7:#5]", []),
        ("[#15:#1000]", [15, 16, 17, 18, 19]),
        ("[3]", [6, 7]),
        ("[3:5]", [6, 7, 8, 9]),
        ('[(3,"7")]', [7]),
        ('[(3,"7"):(4,"9")]', [7, 8]),
        ("[100:]", []),
    ],
)
def test_rows_are_selected_by_index_and_key(client, numbers, selector, expected):
    """Ranges are half-open, exact selectors take what has the prefix; only the named columns come."""
    assert [row["v"] for row in client.read_table(numbers + selector)] == expected
    assert list(client.read_table(f"{numbers}{{v,zz}}{selector}")) == [{"v": v} for v in expected]


def test_control_rows_say_where_rows_come_from(raw, numbers):
    """Entities with attributes announce range and row index."""
    answer = raw.command(
        "GET",
        "read_table",
        {
            "path": numbers + "{v}[#3,#7:#9]",
            "output_format": "json",
            "control_attributes": {"enable_row_index": True, "enable_range_index": True},
        },
    )
    rows = [json.loads(line) for line in answer.body.splitlines()]
    assert rows == [
        {"$attributes": {"range_index": 0}, "$value": None},
        {"$attributes": {"row_index": 3}, "$value": None},
        {"v": 3},
        {"$attributes": {"range_index": 1}, "$value": None},
        {"$attributes": {"row_index": 7}, "$value": None},
        {"v": 7},
        {"v": 8},
    ]
    parameters = json.loads(answer.headers["x-yt-response-parameters"])
    assert parameters == {"start_row_index": 3, "approximate_row_count": 3}


def test_dynamic_tables_are_read_like_static_ones(client, tmp):
    """A sorted one in the order of keys, an ordered one in the order of rows."""
    for name, order in (("sorted", {"sort_order": "ascending"}), ("ordered", {})):
        schema = [{"name": "k", "type": "int64", **order}, {"name": "v", "type": "string"}]
        path = f"{tmp}/{name}"
        create(client, path, schema)
        client.insert_rows(path, [{"k": n, "v": str(n)} for n in (2, 1, 3)])
    assert [row["k"] for row in client.read_table(f"{tmp}/sorted")] == [1, 2, 3]
    assert [row["k"] for row in client.read_table(f"{tmp}/ordered")] == [2, 1, 3]
    assert [row["k"] for row in client.read_table(f"{tmp}/sorted[2:]")] == [2, 3]
    error = _failure(client.write_table, f"{tmp}/sorted", [{"k": 1}])
    assert "dynamic" in str(error)
    # Only lookups and queries need mounted tablets.
    client.unmount_table(f"{tmp}/ordered", sync=True)
    assert [row["k"] for row in client.read_table(f"{tmp}/ordered")] == [2, 1, 3]


def test_tables_are_concatenated(raw, client, tmp):
    """Chunks are shared, not copied, and the sources stay."""
    for name in "ab":
        client.write_table(f"{tmp}/{name}", [{"n": name}])
    client.concatenate([f"{tmp}/a", f"{tmp}/b"], f"{tmp}/all")
    client.concatenate([f"{tmp}/a"], f"<append=%true>{tmp}/all")
    client.concatenate([f"{tmp}/all", f"{tmp}/all"], f"{tmp}/all")
    assert [row["n"] for row in client.read_table(f"{tmp}/all")] == ["a", "b", "a"] * 2
    client.remove(f"{tmp}/a")
    assert client.row_count(f"{tmp}/all") == 6
    client.write_file(f"{tmp}/f", b"x")
    mixed = {"source_paths": [f"{tmp}/f"], "destination_path": f"{tmp}/all"}
    answer = raw.command("POST", "concatenate", mixed)
    assert "Files can be joined with files only" in answer.error["message"]


@pytest.mark.parametrize(
    "form",
    [yt.YsonFormat(format="binary"), yt.YsonFormat(format="text"), yt.JsonFormat()],
    ids=["binary", "text", "json"],
)
def test_rows_survive_every_format(client, tmp, form):
    """Tabs, line breaks and bytes outside ASCII come back as they were."""
    rows = [{"a": "x\ty\nz=\\", "b": "ы"}, {"a": "", "b": "2"}]
    client.write_table(f"{tmp}/t", rows, format=form)
    assert list(client.read_table(f"{tmp}/t")) == rows
    assert list(client.read_table(f"{tmp}/t", format=form)) == rows
    other = yt.SchemafulDsvFormat(columns=["a", "b"])
    with pytest.raises(yt.YtError, match='Unsupported output format "schemaful_dsv"'):
        client.read_table(f"{tmp}/t", format=other)
    with pytest.raises(yt.YtError, match='Unsupported input format "schemaful_dsv"'):
        client.write_table(f"{tmp}/t", rows, format=other)


def test_many_rows_go_in_chunks(client, tmp):
    """Ranges reach across chunk borders."""
    client.write_table(f"{tmp}/t", ({"n": n} for n in range(120_000)))
    assert client.get(f"{tmp}/t/@chunk_count") > 1
    part = [row["n"] for row in client.read_table(f"{tmp}/t[#49998:#50002]")]
    assert part == [49998, 49999, 50000, 50001]


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_file_that_did_not_change_is_not_sent_again(client, raw, tmp, version):
    """The tag is the id with the revision; who names it gets no content until the file changes."""
    client.write_file(f"{tmp}/f", b"first")
    url = f"/api/{version}/read_file?path={tmp}/f"
    tag = raw("GET", url).headers["etag"]
    assert tag == f"{client.get(f'{tmp}/f/@id')}:{client.get(f'{tmp}/f/@revision')}"
    again = raw("GET", url, {"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    client.write_file(f"{tmp}/f", b"second")
    changed = raw("GET", url, {"If-None-Match": tag})
    assert (changed.status, changed.body) == (200, b"second")


def test_table_can_be_read_without_rows_written_before_a_timestamp(client, tmp):
    """The path carries both ends of the time that counts."""
    table = create(client, f"{tmp}/d")
    client.insert_rows(table, [{"k": 1, "v": "b"}])
    since = client.generate_timestamp()
    client.insert_rows(table, [{"k": 2, "v": "c"}])
    until = client.generate_timestamp()
    client.insert_rows(table, [{"k": 3, "v": "d"}])
    wanted = {"retention_timestamp": since}
    for more, found in (({}, [2, 3]), ({"timestamp": until}, [2])):
        attributes = "; ".join(f"{name}={value}u" for name, value in (wanted | more).items())
        rows = client.read_table(f"<{attributes}>{table}")
        assert [row["k"] for row in rows] == found


def _table(client, path, rows=(), *, unique=False, **attributes):
    schema = yson.to_yson_type(key_columns(k="int64"), {"unique_keys": unique})
    client.create("table", path, attributes={"schema": schema, **attributes})
    if rows:
        client.write_table(path, [{"k": k} for k in rows])
    return path


def _keys(client, path):
    return [row["k"] for row in client.read_table(path)]


def test_chunks_are_joined_in_the_order_of_a_sorted_target(raw, client, tmp):
    """Whole chunks move, ranges that overlap are refused, and what is there comes first."""
    low, high = _table(client, f"{tmp}/low", [1, 2]), _table(client, f"{tmp}/high", [5, 6])
    target = _table(client, f"{tmp}/t")

    def join(*sources, into=target):
        given = {"source_paths": list(sources), "destination_path": into}
        return raw.command("POST", "concatenate", given).json()

    join(high, low)
    assert _keys(client, target) == [1, 2, 5, 6]
    wide = _table(client, f"{tmp}/wide", [0, 3])
    assert join(low, wide)["code"] == 301
    assert join(low, into=f"<append=%true>{target}")["code"] == 301
    join(_table(client, f"{tmp}/top", [6, 7]), into=f"<append=%true>{target}")
    assert _keys(client, target) == [1, 2, 5, 6, 6, 7]


def test_joined_keys_are_unique_where_the_target_says_so(raw, client, tmp):
    """And a source that does not promise it is refused before any key is compared."""
    target = _table(client, f"{tmp}/t", unique=True)
    sources = [_table(client, f"{tmp}/{name}", [1], unique=True) for name in "ab"]
    given = {"source_paths": sources, "destination_path": target}
    assert raw.command("POST", "concatenate", given).json()["code"] == 306
    given["source_paths"] = [_table(client, f"{tmp}/c", [1])]
    assert raw.command("POST", "concatenate", given).json()["code"] == 307


def test_values_of_different_types_are_ordered_by_type(client, tmp):
    """Null, int64, uint64, double, boolean, string: as masters compare keys without a schema."""
    given = [None, 5, yson.YsonUint64(3), 2.5, False, "a"]
    client.create("table", f"{tmp}/t")
    client.write_table(f"<sorted_by=[s]>{tmp}/t", [{"s": value} for value in given])
    assert [row["s"] for row in client.read_table(f"{tmp}/t[3u:%false]")] == [3, 2.5]


def test_values_of_a_static_table_are_converted_on_request(raw, client, tmp):
    """By the switches of the input format, as in dynamic tables."""
    client.create("table", f"{tmp}/t", attributes={"schema": [{"name": "v", "type": "boolean"}]})
    form = {"$value": "yson", "$attributes": {"enable_type_conversion": True}}
    for given, status in (("yson", 400), (form, 200)):
        parameters = {"path": f"{tmp}/t", "input_format": given}
        assert raw.command("PUT", "write_table", parameters, b'{v="true"}').status == status
    assert list(client.read_table(f"{tmp}/t")) == [{"v": True}]


def test_rows_lie_in_descending_order_where_masters_allow_it(client, tmp):
    """By default they do not; a limit of another type is before or after all values of the column."""
    path = f"{tmp}/t"
    columns = [
        {"name": name, "type": kind, "sort_order": "descending"}
        for name, kind in (("s", "string"), ("d", "double"))
    ]
    with pytest.raises(yt.YtResponseError, match="Descending sort order is not available"):
        client.create("table", path, attributes={"schema": columns})
    client.set("//sys/@config", {"enable_descending_sort_order": True})
    try:
        client.create("table", path, attributes={"schema": columns})
        rows = [{"s": s, "d": d} for s, d in (("b", 2.5), ("b", 1.5), ("ab", None), ("a", 0.0))]
        client.write_table(path, rows)
        assert client.get(f"{path}/@boundary_keys") == {
            "min_key": ["b", 2.5],
            "max_key": ["a", 0.0],
        }
        for limits, places in (
            ("(b, 2) : (a, )", [1, 2]),
            ("b", [0, 1]),
            ("(ab, #)", [2]),
            ("(b, x) : ", [0, 1, 2, 3]),
        ):
            found = list(client.read_table(f"{path}[{limits}]"))
            assert found == [rows[place] for place in places]
        with pytest.raises(yt.YtResponseError, match="Sort order violation"):
            client.write_table(path, rows[::-1])
    finally:
        client.remove("//sys/@config")


def test_joined_table_takes_the_schema_of_its_sources_or_checks_it(raw, client, tmp):
    """One without a schema of its own gets theirs where they agree."""
    column = {"name": "a", "type": "int64"}
    for name, schema in (("s", [column]), ("t", [column]), ("u", [{**column, "type": "string"}])):
        client.create("table", f"{tmp}/{name}", attributes={"schema": schema})
        client.create("table", f"{tmp}/to_{name}")

    def join(*names, to):
        paths = [f"{tmp}/{name}" for name in names]
        parameters = {"source_paths": paths, "destination_path": f"{tmp}/{to}"}
        answer = raw.command("POST", "concatenate", parameters)
        return None if answer.status == 200 else answer.error

    assert join("s", "t", to="to_s") is None
    assert client.get(f"{tmp}/to_s/@schema") == client.get(f"{tmp}/s/@schema")
    assert client.get(f"{tmp}/to_s/@schema_mode") == "strong"
    assert join("s", "u", to="to_t") is None
    assert client.get(f"{tmp}/to_t/@schema_mode") == "weak"
    for name in ("u", "to_u"):
        assert "is not compatible with schema of input table" in join(name, to="s")["message"]


@pytest.mark.parametrize(
    ("bound", "rows"), [([">", [1]], [2, 3]), ([">=", [1]], [1, 2, 3]), (["=", [1]], None)], ids=str
)
def test_bound_of_a_key_says_how_it_compares(client, tmp, bound, rows):
    """Unlike `key`, which is always the first row that is wanted."""
    limits = {"ranges": [{"lower_limit": {"key_bound": bound}}]}
    path = yson.to_yson_type(_table(client, f"{tmp}/t", range(4)), limits)
    if rows is None:
        _failure(client.read_table, path)
    else:
        assert _keys(client, path) == rows


@pytest.mark.parametrize(
    ("command", "place", "message"),
    [
        ("read_table", "{tmp}/plain[1]", "Cannot use key or key bound in read limit"),
        ("read_table", "<lower_limit={{offset=1}}>{tmp}/plain", ""),
        ("read_table", "<lower_limit={{tablet_index=0}}>{tmp}/plain", ""),
        ("read_table", "<lower_limit={{row_index=1}}>{tmp}/dynamic", ""),
        # A chunk that is sorted otherwise than the table is not kept here.
        ("write_table", "<chunk_sort_columns=[v]>{tmp}/plain", "by the embedded cluster"),
        # The table would be said to be sorted.
        ("write_table", "<append=%true;sorted_by=[v]>{tmp}/plain", "Sort columns mismatch"),
    ],
)
def test_part_of_a_path_that_would_be_ignored_is_refused(client, tmp, command, place, message):
    """A whole table instead of a part is the wrong answer."""
    client.write_table(f"{tmp}/plain", [{"v": 2}, {"v": 1}])
    create(client, f"{tmp}/dynamic", mount=False)
    rows = [] if command == "read_table" else [[{"v": 3}]]
    error = _failure(lambda: list(getattr(client, command)(place.format(tmp=tmp), *rows) or ()))
    assert message in str(error)
