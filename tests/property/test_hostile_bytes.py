"""Bytes of whoever may write to a queue or reach a proxy: typed errors, and memory in proportion."""

from itertools import product
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from tests.arrow_streams import stream_of
from tests.kinds import listed, optional
from tests.property import hostile_bytes
from tests.property.hostile_bytes import FLOOR, cost_of, rows_in_a_cell, string
from tests.property.hostile_formats import payloads_of, rowset_of
from tests.property.hostile_readers import (
    ANY,
    LISTS,
    PLAIN,
    READERS,
    SCHEMAS,
    STRUCTS,
    decoded,
    inserted,
    read_all,
)
from yt_exactly_once.errors import EncodingError
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import json_format, row_formats, row_pieces
from yt_exactly_once.local.formats.structured import Format
from yt_exactly_once.local.tables import large_values, values
from yt_exactly_once.local.tables.compression import decompress
from yt_exactly_once.local.tablets import appends, validation
from yt_exactly_once.local.tablets.block_bodies import fields_of

STRINGS = [{"name": "c", "type": "string"}]
NUMBERS = [{"name": "c", "type_v3": LISTS[0]["type_v3"]}]
PAIRS = [{"name": name, "type_v3": optional(listed(listed("int64")))} for name in "ia"]
WIDE = [
    *PLAIN,
    *({"name": f"x{n}", "type": "int64", "type_v3": optional("int64")} for n in range(50)),
]
SIZE = 1 << 19


def arrow_of(array, *, holds_yson=False):
    metadata = {"YtType": "yson"} if holds_yson else None
    batch = pa.record_batch(
        [array], schema=pa.schema([pa.field("a", array.type, metadata=metadata)])
    )
    return stream_of(batch)


def yson_arrow(cells):
    return arrow_of(pa.array(cells, pa.binary()), holds_yson=True)


LIST = pa.list_(pa.list_(pa.int64()))


def many(unit, before=b"", after=b""):
    return before + unit * (SIZE // len(unit)) + after


LARGE_CELL = {
    "any": (many(b"[];", b"{\x01\x02a=[", b"];};"), ANY),
    "text": (many(b"{};", b"{a=[", b"]}"), ANY),
    "lists": (many(b"[];", b"{\x01\x02a=[", b"];};"), PAIRS),
    "attributes": (many(b"<>#;", b"{\x01\x02a=[", b"];};"), LISTS),
    "wrong type": (many(b"{};", b"{\x01\x02i=[", b"];};"), PLAIN),
}
ONE_TEXT = pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int32()), ["x" * 100_000])
SPARSE = many(b"{\x01\x02i=#};")
VARIOUS = b"".join(b'{"x%d":1}\n' % (n % 50) for n in range(SIZE // 10))
STRUCTS_IN_A_CELL = (b"{\x01\x02a=[", b"];};")
# Each opening claims all bytes behind it; together that is thousands of times what there is.
OPENINGS = {
    marker: rows_in_a_cell(string(b"c") + b"=", marker, b";" + b"#;" * 8_000 + b"]", size=60_000)
    for marker in (b"\x01", b"[\x01")
}
PAYLOADS = {
    "pull: openings of rows in a string": ("product: rows of a pull", OPENINGS[b"\x01"], STRINGS),
    "pull: openings of rows in a list": ("product: rows of a pull", OPENINGS[b"[\x01"], NUMBERS),
    "YSON: openings of rows in a string": ("cluster: YSON", OPENINGS[b"\x01"], STRINGS),
    "JSON: rows without any column, each of which takes little time": ("cluster: JSON", many(b"{}"), PLAIN),
    "JSON: rows without most columns": ("cluster: JSON", many(b'{"i":1}\n'), WIDE),
    "JSON: rows that mention different columns": ("cluster: JSON", VARIOUS, WIDE),
    "YSON: rows without most columns": ("cluster: YSON", SPARSE, WIDE),
    "YSON: rows of one column": ("cluster: YSON", many(b"{\x01\x02i=\x02\x02;};"), WIDE),
    "YSON: empty rows": ("cluster: YSON", many(b"{};"), WIDE),
    "sorted: rows without most columns": ("cluster: YSON, sorted", SPARSE, WIDE),
    "sorted: empty rows": ("cluster: YSON, sorted", many(b"{};"), WIDE),
    "rowset: rows without most columns": ("cluster: rowset", rowset_of([[(0, 2, b"")], []] * 24_000), WIDE),
    "Arrow: nulls": ("cluster: Arrow", arrow_of(pa.nulls(1 << 20)), WIDE),
    "Arrow: one text of many rows": ("cluster: Arrow", arrow_of(ONE_TEXT), ANY),
    "YSON: empty structs": ("cluster: YSON", many(b"{};", *STRUCTS_IN_A_CELL), STRUCTS),
    "YSON: too many empty structs": ("cluster: YSON", (b"{};" * 300_000).join(STRUCTS_IN_A_CELL), STRUCTS),
    "YSON: rows with lists": ("cluster: YSON", many(b"{\x01\x02a=[[];[];];};"), ANY),
    "YSON: rows of several kinds": ("cluster: YSON", many(b"{a=[];};{b={};};"), ANY),
    "YSON: keys": ("cluster: YSON", b"{" + b"".join(b"k%d=#;" % n for n in range(SIZE // 9)) + b"}", ANY),
    **{f"YSON: {name}": ("cluster: YSON", *cell) for name, cell in LARGE_CELL.items()},
    "JSON: rows": ("cluster: JSON", many(b'{"a":[[],[]]}\n'), ANY),
    "JSON: one row": ("cluster: JSON", many(b"[],", b'{"a":[', b"[]]}"), ANY),
    "Arrow: YSON": ("cluster: Arrow", yson_arrow([many(b"[];", b"[", b"]")]), ANY),
    "Arrow: rows of YSON": ("cluster: Arrow", yson_arrow([b"[[];[];[]]"] * 30_000), ANY),
    "Arrow: lists": ("cluster: Arrow", arrow_of(pa.array([[[]] * (SIZE // 4)], LIST)), PAIRS),
    "rowset: one value": ("cluster: rowset", rowset_of([[(4, 17, many(b"[];", b"[", b"]"))]]), ANY),
    "rowset: values": ("cluster: rowset", rowset_of([[(4, 17, b"[[];[];[];[];[]]")]] * 16_000), ANY),
    "rowset: rows of several kinds": ("cluster: rowset", rowset_of([[(4, 17, b"[]")], []] * 12_000), ANY),
    "value in YSON": ("cluster: value in YSON", many(b"{};", b"[", b"]"), ANY),
    "value in JSON": ("cluster: value in JSON", many(b"{},", b"[", b"1]"), ANY),
    "query": ("cluster: query", many(b",1", b"* from [//t] where i in (0", b")"), ANY),
    "query: text": ("cluster: query", b"s from [//t] where s = '" + bytes(250_000) + b"'", ANY),
    "path": ("cluster: path", many(b"#1:#2,", b"//t[", b"]"), ANY),
}  # fmt: skip


@pytest.mark.parametrize("name", PAYLOADS)
def test_what_takes_few_bytes_takes_little_memory(name):
    """As Python objects each of these takes 10 to 200 times its bytes."""
    reader, payload, schema = PAYLOADS[name]
    cost = cost_of(lambda body: READERS[reader].read(body, schema), payload)
    assert cost.error is None or isinstance(cost.error, READERS[reader].typed)
    assert cost.peak <= FLOOR + 8 * len(payload)


def test_a_text_in_a_column_of_another_type_is_not_quoted():
    """Arrow's message would spell each byte of it out."""
    payload = b"{" + string(b"b") + b"=" + string(bytes(1_400_000)) + b";};"
    cost = cost_of(lambda rows: decoded(rows, PLAIN), payload)
    assert isinstance(cost.error, EncodingError)
    assert cost.peak <= 4 * len(payload)


@pytest.mark.parametrize("reader", READERS)
def test_bytes_are_read_or_refused_in_little_memory(reader):
    """Whatever they are: rows, rows inside of strings, deep and long values, damage, noise."""
    given = READERS[reader]
    for number, (family, payload, length) in enumerate(given.payloads(7, range(20), 1 << 18)):
        schema = SCHEMAS[number % 4]
        cost = cost_of(lambda body, schema=schema: given.read(body, schema), payload)
        shown = f"payload {number}: {family}, {len(payload)} bytes"
        assert cost.error is None or isinstance(cost.error, given.typed), f"{shown}: {cost.error!r}"
        assert cost.peak <= FLOOR + 8 * length, f"{shown}: {cost.peak} bytes"


@pytest.mark.nightly
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("reader", READERS)
def test_ten_thousand_payloads(reader):
    """The memory of the process counts, and processor time."""
    assert not read_all(reader, 1, range(10_000)).violations


def outcome(payload: bytes, schema: Any, form: Format) -> Any:
    """Return what an insert would store, or that it fails."""
    try:
        (batch,) = inserted(payload, schema, form=form)
    except YtError:
        return "refused"
    if batch.rows.error is not None:
        return "refused by the commit"
    fields = fields_of(batch.layout)
    rows = [
        row
        for page in appends.pack(batch.layout, batch.parts)
        for row in pa.ipc.read_record_batch(
            decompress(page.body, page.size) if page.size else page.body, fields.schema
        ).to_pylist()
    ]
    for row, column in product(rows, batch.layout.columns):
        if column.wire_type == "any" and row[column.name] is not None:
            row[column.name] = values.load_yson(row[column.name])
    return rows


@pytest.mark.parametrize("schema", [PLAIN, LISTS, STRUCTS, ANY, PAIRS])
def test_rows_in_pieces_are_the_rows(schema):
    """Where every value counts as large, the same is stored and the same is refused."""
    families = (*[hostile_bytes.rows_of_values] * 4, *hostile_bytes.FAMILIES)
    kept = 0
    for _, payload, _ in payloads_of(families, 3, range(150), 1 << 10):
        whole = outcome(payload, schema, Format("yson"))
        with (
            mock.patch.object(large_values, "LARGE", 20),
            mock.patch.object(large_values, "_PIECE", 20),
            mock.patch.object(row_pieces, "LARGE", 20),
            mock.patch.object(row_formats, "_MANY_BYTES", 1 << 30),
            mock.patch.object(validation, "GROUP_BYTES", 1000),
        ):
            assert repr(outcome(payload, schema, Format("yson"))) == repr(whole), payload
        kept += not isinstance(whole, str)
    assert kept > 2


def test_rows_of_json_in_pieces_are_the_rows():
    """A row is one wherever a piece ends."""
    body = b'{"s":"a}","a":[1,{"k":"]"}]} {"i":2}\n{"s":"\\"{"}{}' * 3
    whole = list(row_formats.loads(body, Format("json")))
    with mock.patch.object(row_pieces, "LARGE", 8), mock.patch.object(json_format, "LARGE", 8):
        assert list(row_formats.loads(body, Format("json"))) == whole
        assert list(row_formats.loads(body, Format("json"))[2:5]) == whole[2:5]
