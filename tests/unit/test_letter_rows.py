"""Letters as rows of their target: as the DataFrame had them, or refused by name."""

import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest
import yt.yson

from tests.kinds import decimal, dict_of, listed, optional, struct
from yt_exactly_once.codec.rejects import packed
from yt_exactly_once.codec.rows import WireFormat, encode
from yt_exactly_once.codec.schema import SERVICE_COLUMNS, TableSchema, check_frame
from yt_exactly_once.operations.dead_letters import kept_row
from yt_exactly_once.operations.letter_rows import Letter, Spelling, Target
from yt_exactly_once.ytsaurus.tables import TableInfo

INSTANT = pa.timestamp("us", "UTC")
FAR = 6 * 10**17
ABOUT = {"table": "t", "tablet": 0, "index": 0, "query_id": "q", "batch_id": 0, "target": "//t"}
ABOUT |= {"column": "x", "reason": "because"}


def target(columns, **declared):
    """Return a target with columns, sorted by `key` if it has one."""
    given = [
        {"name": name, "type_v3": kind, **({"sort_order": "ascending"} if name == "key" else {})}
        for name, kind in columns.items()
    ]
    return Target(
        TableInfo("//t", "1-2", "key" in columns, 1, "mounted", given, "full"), Spelling(**declared)
    )


def letter(row, marker="", **repaired):
    """Return a row as a letter, read as the command does and perhaps corrected in the file of `show`."""
    found = kept_row(*packed(row, marker))
    found["row"] = json.loads(json.dumps({**found["row"], **repaired}))
    return Letter(**ABOUT, **found)


def written(into, *letters):
    """Return what a replay would write of letters that fit, and why others do not."""
    groups, unfit = into.grouped(letters)
    unfit |= {place: why for group in groups for place, why in group.faults().items()}
    if unfit:
        return [], list(unfit.values())
    bodies = [one for group in groups for one in group.payloads(None)]
    return [(one.deletes, rows_in(one.data)) for one in bodies], []


def rows_in(data):
    """Read YSON as another parser does."""
    plain = {"encoding": None, "always_create_attributes": False}
    return list(yt.yson.loads(data, yson_type="list_fragment", **plain))


def row_of(kind, value, loose=None):
    """Return a row with one column, whose value may be built from another type of the same layout."""
    return pa.record_batch({"x": pa.array([value], loose or kind).view(kind)})


TEXTS, BYTES = pa.list_(pa.string()), pa.list_(pa.binary())
CASES = {
    "bytes that are no text": ("string", row_of(pa.string(), b"\xff", pa.binary())),
    "no text in a list": (listed("string"), row_of(TEXTS, [b"\xff", b"b"], BYTES)),
    "bytes in a struct": (struct(a="string"), row_of(pa.struct([("a", pa.binary())]), {"a": b"1"})),
    "text that is base64 of YSON": ("yson", row_of(pa.string(), "AgI=")),
    "YSON": ("yson", row_of(pa.binary(), b"\x02\x02")),
    "map": (dict_of("utf8", "int64"), row_of(pa.map_(pa.string(), pa.int64()), [("a", 1)])),
    "instants": (listed("timestamp64"), row_of(pa.list_(INSTANT), [5, FAR], pa.list_(pa.int64()))),
    "decimals": (listed(decimal(5, 2)), row_of(pa.list_(pa.decimal128(5, 2)), [Decimal("-1.50")])),
    "not finite": (listed("double"), row_of(pa.list_(pa.float64()), [math.nan, -math.inf])),
    "interval": ("interval", row_of(pa.duration("us"), -1, pa.int64())),
    "year beyond 9999": ("timestamp64", row_of(INSTANT, FAR, pa.int64())),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_row_comes_back_as_it_was(name):
    """What JSON cannot hold does, too."""
    kind, row = CASES[name]
    columns = {"x": optional(kind)}
    table = TableSchema.from_yt([{"name": "x", "type_v3": optional(kind)}])
    plan = check_frame(row.schema, table, target="//t", sorted=False)
    (group,), unfit = target(columns).grouped([letter(row)])
    assert unfit == {}
    assert group.rows.equals(row) or "nan" in str(row.column(0))
    (payload,) = group.payloads(None)
    assert payload.data == encode(row, plan, WireFormat.YSON)


def test_corrected_part_leaves_the_others_of_its_column_as_they_are():
    """Though they are spelled, and whichever place they have now."""
    parts = [("t", INSTANT), ("s", pa.string())]
    loose = pa.list_(pa.struct([("t", pa.int64()), ("s", pa.binary())]))
    row = row_of(
        pa.list_(pa.struct(parts)), [{"t": FAR, "s": b"\xff"}, {"t": 1, "s": b"bad"}], loose
    )
    shown = letter(row).row["x"]
    into = target({"x": listed(struct(t="timestamp64", s="string"))})
    shown[1]["s"] = "good"
    ((_, (found,)),), _ = written(into, letter(row, x=shown))
    assert found == {b"x": [{b"t": FAR, b"s": b"\xff"}, {b"t": 1, b"s": b"good"}]}
    _, (why,) = written(into, letter(row, x=[shown[1], shown[0] | {"t": None}]))
    assert why.startswith("x: the value is no list")


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.int64(), "1"), (pa.int64(), True), (pa.string(), 1), (pa.string(), "\\xff"), (pa.binary(), "?"),
     (pa.bool_(), 1), (pa.date32(), "29349-01-26"), (TEXTS, ["a", 1]), (pa.int8(), 300)],
)  # fmt: skip
def test_correction_of_another_kind_is_refused_by_name(kind, value):
    """It is parsed by the column's own type."""
    row = pa.record_batch({"x": pa.nulls(1, kind)})
    _, (why,) = written(target({"x": optional("string")}), letter(row, x=value))
    assert why == f"x: the value is no {kind}"


def test_columns_that_the_sink_does_not_write_are_left_out():
    """Those of the source, of the cluster and of SPYT; any other one must be in the target."""
    names = [*SERVICE_COLUMNS, "$timestamp", "$row_index"]
    row = pa.record_batch({"x": pa.array([1])} | {name: pa.array([7]) for name in names})
    into = target({"x": "int64"})
    assert written(into, letter(row)) == ([(False, [{b"x": 1}])], [])
    earlier = Letter(**ABOUT, row=letter(row).row)
    assert written(into, earlier) == written(into, letter(row))
    more = row.append_column("y", pa.array(["a"]))
    for one in (letter(more), Letter(**ABOUT, row=letter(more).row)):
        assert written(into, one) == ([], ["the target has no column y"])


def test_delete_marker_deletes():
    """It is the sink's word about the row, and no column of the target."""
    into = target({"key": "int64", "x": "int64"})

    def marked(given, **more):
        values = {"key": pa.array([1]), "x": pa.array([2]), "gone": pa.array([given], pa.bool_())}
        return letter(pa.record_batch(values), "gone", **more)

    assert written(into, marked(True)) == ([(True, [{b"key": 1}])], [])
    assert written(into, marked(None, gone=False)) == ([(False, [{b"key": 1, b"x": 2}])], [])
    assert written(into, marked(None)) == ([], ["the delete marker is null"])


@pytest.mark.parametrize("kept", [b"", b"\xff" * 40, packed(row_of(pa.int64(), 1), "")[0][:-40]])
def test_letter_that_no_sink_wrote_is_refused(kept):
    """It is listed, and stays."""
    one = Letter(**ABOUT, **kept_row(kept, b"{}"))
    _, (why,) = written(target({"x": "int64"}), one)
    assert why == "the letter has no row: it was too long, or is no row"


DOUBT = "x: an earlier version wrote the letter without types"
EARLIER = {
    "text": ("string", "a text", b"a text", ()),
    "text or base64": ("string", "test", DOUBT, ()),
    "spelled": ("utf8", "\\xff", DOUBT, ()),
    "declared text": ("string", "test", b"test", "texts"),
    "declared base64": ("string", "/wA=", b"\xff\x00", "binary"),
    "in a list": (listed("string"), ["a b", "test"], DOUBT, ()),
    "declared in a list": (listed("string"), ["/wA="], [b"\xff\x00"], "binary"),
    "any": ("yson", "AgI=", DOUBT, ()),
    "declared any": ("yson", "AgI=", 1, "binary"),
    "text in any": ("yson", "AgI=", b"AgI=", "texts"),
    "any in a list": (listed("yson"), ["AgI="], DOUBT, ()),
    "uuid": ("uuid", "AAAAAAAAAAAAAAAAAAAAAA==", bytes(16), ()),
    "numbers": (listed("double"), [1.5, "nan"], [1.5, math.nan], ()),
    "decimal": ("uint64", "18446744073709551615", 2**64 - 1, ()),
    "date": ("date", "2026-01-31", 20484, ()),
    "instant": (listed("timestamp"), ["2020-01-01 00:00:00.000005+00:00"], [1577836800000005], ()),
    "map": (dict_of("int64", "double"), [[1, 2.0]], [[1, 2.0]], ()),
    "interval": ("interval", "1 day, 0:00:00", "x: the value is no duration[us]", ()),
    "far": ("timestamp64", "20983-03-30 10:40:00Z", "x: the value is no timestamp", ()),
}  # fmt: skip


@pytest.mark.parametrize("name", EARLIER)
def test_letter_without_types_comes_back_where_json_says_what_it_is(name):
    """The columns of the target decide, and a person where a text may be base64."""
    kind, value, expected, declared = EARLIER[name]
    spelling = {declared: ["x"]} if declared else {}
    found, unfit = written(
        target({"x": optional(kind)}, **spelling), Letter(**ABOUT, row={"x": value})
    )
    if isinstance(expected, str):
        assert unfit[0].startswith(expected)
        assert found == []
    else:
        assert unfit == []
        assert str(found) == str([(False, [{b"x": expected}])])
