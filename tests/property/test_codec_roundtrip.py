"""Random tables and rows: what is encoded is what independent readers of YSON and Arrow find."""

import datetime as dt
import math
from decimal import Context, Decimal

import pyarrow as pa
import pytest
import yt.yson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yt.yson.yson_types import YsonUint64

from yt_exactly_once.codec.rows import WireFormat, decode, encode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, check_frame
from yt_exactly_once.codec.types import (
    INTEGER_RANGES,
    DecimalType,
    DictType,
    ListType,
    Member,
    OptionalType,
    SimpleType,
    StructType,
    TaggedType,
    TupleType,
    VariantType,
    is_nullable,
    render_type,
)
from yt_exactly_once.codec.yson_reader import ParsedRows
from yt_exactly_once.codec.yson_scan import scan_rows

thorough = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

SIMPLE = sorted({*INTEGER_RANGES, "float", "double", "bool", "string", "utf8", "json", "uuid"})
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
WIDE = Context(prec=80)


def simple_types():
    decimals = st.integers(1, 38).flatmap(
        lambda digits: st.integers(0, digits).map(lambda scale: DecimalType(digits, scale))
    )
    return st.sampled_from(SIMPLE).map(SimpleType) | decimals


def members(types):
    names = st.lists(st.sampled_from("abcdé"), min_size=1, max_size=3, unique=True)
    return names.flatmap(
        lambda chosen: st.tuples(
            *[types.map(lambda t, name=name: Member(name, t)) for name in chosen]
        )
    )


def unnamed(types):
    return st.lists(types, min_size=1, max_size=3).map(
        lambda found: tuple(Member(f"_{n}", one) for n, one in enumerate(found, 1))
    )


def types():
    def composite(inner):
        return st.one_of(
            inner.map(OptionalType),
            inner.map(ListType),
            inner.map(lambda item: TaggedType("label", item)),
            members(inner).map(StructType),
            st.lists(inner, min_size=1, max_size=3).map(lambda found: TupleType(tuple(found))),
            members(inner).map(lambda found: VariantType(found, named=True)),
            unnamed(inner).map(lambda found: VariantType(found, named=False)),
            st.tuples(simple_types(), inner).map(lambda pair: DictType(*pair)),
        )

    return st.recursive(simple_types(), composite, max_leaves=5)


def values(logical):  # noqa: C901, PLR0911 - a case per kind
    """Draw pairs: the value as Arrow takes it, and as YSON has it by name and by position."""
    match logical:
        case TaggedType(_, item):
            return values(item)
        case SimpleType(name):
            return simple_values(name)
        case DecimalType(precision, scale):
            return st.integers(1 - 10**precision, 10**precision - 1).map(
                lambda number: same(
                    Decimal(number).scaleb(-scale, WIDE), stored_decimal(number, precision)
                )
            )
        case OptionalType(item) if is_nullable(item):
            inner = values(item).map(lambda v: ({"value": v[0]}, [v[1]], [v[2]]))
            return st.just((None, None, None)) | inner
        case OptionalType(item):
            return st.just((None, None, None)) | values(item)
        case ListType(item):
            return st.lists(values(item), max_size=3).map(transposed)
        case TupleType(elements):
            return st.tuples(*map(values, elements)).map(
                lambda found: (
                    {f"_{n}": v[0] for n, v in enumerate(found, 1)},
                    [v[1] for v in found],
                    [v[2] for v in found],
                )
            )
        case StructType(parts):
            return st.tuples(*[values(part.type) for part in parts]).map(
                lambda found: (
                    {part.name: v[0] for part, v in zip(parts, found, strict=True)},
                    {part.name.encode(): v[1] for part, v in zip(parts, found, strict=True)},
                    [v[2] for v in found],
                )
            )
        case DictType(key, value):
            pairs = st.lists(st.tuples(values(key), values(value)), max_size=3)
            return pairs.map(
                lambda found: (
                    [(k[0], v[0]) for k, v in found],
                    [[k[1], v[1]] for k, v in found],
                    [[k[2], v[2]] for k, v in found],
                )
            )
        case VariantType(alternatives, named):
            return st.one_of(
                [chosen(index, one, named=named) for index, one in enumerate(alternatives)]
            )


def chosen(index, one, *, named):
    def shape(v):
        inner = {"value": v[0]} if is_nullable(one.type) else v[0]
        tag = one.name.encode() if named else index
        return {f"_v{one.name}": inner}, [tag, v[1]], [index, v[2]]

    return values(one.type).map(shape)


def transposed(found):
    return tuple([list(v) for v in zip(*found, strict=True)]) if found else ([], [], [])


def same(arrow, yson):
    return arrow, yson, yson


def stored_decimal(number, precision):
    width = next(w for most, w in ((9, 4), (18, 8), (38, 16)) if precision <= most)
    return (number + (1 << (8 * width - 1))).to_bytes(width, "big")


def simple_values(name):  # noqa: PLR0911 - a line per kind
    if name == "bool":
        return st.booleans().map(lambda v: same(v, v))
    if name == "float":
        return st.floats(width=32).map(lambda v: same(v, v))
    if name == "double":
        return st.floats().map(lambda v: same(v, v))
    if name in ("utf8", "json", "string"):
        return st.text(max_size=200).map(lambda v: same(v, v.encode()))
    if name == "uuid":
        return st.binary(min_size=16, max_size=16).map(lambda v: same(v, v))
    low, high = INTEGER_RANGES[name]
    numbers = st.sampled_from([low, high, 0, 1, 127, 128]) | st.integers(low, high)
    numbers = numbers.filter(lambda v: low <= v <= high)
    if name == "uint64":
        return numbers.map(lambda v: same(Decimal(v), YsonUint64(v)))
    if low == 0:
        return numbers.map(lambda v: same(v, YsonUint64(v)))
    return numbers.map(lambda v: same(v, v))


# Wide dates and instants do not fit Python's: Arrow gets them as numbers, in the unit it counts.
UNITS = {
    "datetime": 10**6,
    "datetime64": 10**6,
    "timestamp": 1,
    "timestamp64": 1,
    "interval": 1,
    "interval64": 1,
    "date": 1,
    "date32": 1,
}


def counted(arrow):
    """Return the Arrow type that takes the drawn values: numbers in place of dates and spans."""
    if pa.types.is_date32(arrow):
        return pa.int32()
    if pa.types.is_timestamp(arrow) or pa.types.is_duration(arrow):
        return pa.int64()
    return arrow


@st.composite
def tables(draw, column_types):
    types_drawn = draw(st.lists(column_types, min_size=1, max_size=4))
    columns = [
        {"name": f"column{n}", "type_v3": render_type(logical)}
        for n, logical in enumerate(types_drawn)
    ]
    rows = draw(st.lists(st.tuples(*map(values, types_drawn)), max_size=6))
    return columns, types_drawn, rows


def scaled(logical, value):  # noqa: C901, PLR0911 - a case per kind
    """Bring drawn dates and instants to the unit Arrow counts in."""
    match logical:
        case SimpleType(name) if name in UNITS:
            return value * UNITS[name]
        case TaggedType(_, item):
            return scaled(item, value)
        case _ if value is None:
            return None
        case OptionalType(item) if is_nullable(item):
            return {"value": scaled(item, value["value"])}
        case OptionalType(item):
            return scaled(item, value)
        case ListType(item):
            return [scaled(item, one) for one in value]
        case TupleType(elements):
            return {f"_{n}": scaled(one, value[f"_{n}"]) for n, one in enumerate(elements, 1)}
        case StructType(parts):
            return {part.name: scaled(part.type, value[part.name]) for part in parts}
        case DictType(key, item):
            return [(scaled(key, k), scaled(item, v)) for k, v in value]
        case VariantType(alternatives):
            return {
                f"_v{one.name}": scaled(OptionalType(one.type), value[f"_v{one.name}"])
                for one in alternatives
                if f"_v{one.name}" in value
            }
        case _:
            return value


def as_numbers(arrow):
    """Replace dates, instants and spans in a type by the integers they are made of."""
    if pa.types.is_map(arrow):
        key = arrow.key_field.with_type(as_numbers(arrow.key_type))
        return pa.map_(key, arrow.item_field.with_type(as_numbers(arrow.item_type)))
    if pa.types.is_list(arrow):
        return pa.list_(arrow.value_field.with_type(as_numbers(arrow.value_type)))
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(as_numbers(field.type)) for field in arrow])
    return counted(arrow)


def reinterpreted(array, target):
    """Give an array built of numbers the type it stands for, buffers unchanged."""
    buffers = array.buffers()
    if pa.types.is_map(target):
        children = [
            pa.StructArray.from_arrays(
                [
                    reinterpreted(array.keys, target.key_type),
                    reinterpreted(array.items, target.item_type),
                ],
                fields=[target.key_field, target.item_field],
            )
        ]
        return pa.Array.from_buffers(target, len(array), buffers[:2], children=children)
    if pa.types.is_list(target):
        children = [reinterpreted(array.values, target.value_type)]
        return pa.Array.from_buffers(target, len(array), buffers[:2], children=children)
    if pa.types.is_struct(target):
        children = [
            reinterpreted(array.field(n), target.field(n).type) for n in range(target.num_fields)
        ]
        return pa.Array.from_buffers(target, len(array), buffers[:1], children=children)
    return array.view(target) if array.type != target else array


def batch_of(schema, types_drawn, rows):
    arrays = []
    for place, (field, logical) in enumerate(zip(schema, types_drawn, strict=True)):
        drawn = [scaled(logical, row[place][0]) for row in rows]
        arrays.append(reinterpreted(pa.array(drawn, as_numbers(field.type)), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def alike(found, expected):
    """Compare parsed YSON with what it should be: signedness counts, NaN equals NaN."""
    if expected is None:
        return found is None
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(map(alike, found, expected))
        )
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            alike(found[key], value) for key, value in expected.items()
        )
    if isinstance(expected, float):
        return math.isnan(found) if math.isnan(expected) else repr(found) == repr(expected)
    signed_alike = isinstance(found, YsonUint64) == isinstance(expected, YsonUint64)
    return signed_alike and type(found) in (type(expected), bool, int) and found == expected


def parsed(payload, kind="list_fragment"):
    return yt.yson.loads(payload, yson_type=kind, encoding=None, always_create_attributes=False)


@thorough
@given(tables(types()), st.booleans(), st.data())
def test_yson_payload_holds_exactly_the_rows(table, numbered, data):
    """The C++ parser finds the same values, and our own decoder gives the frame back."""
    columns, types_drawn, rows = table
    schema = TableSchema.from_yt(columns)
    frame = arrow_schema_of(schema)
    batch = batch_of(frame, types_drawn, rows)
    plan = check_frame(frame, schema, target="//t", sorted=False)
    numbers = pa.array(range(len(rows)), pa.int64()) if numbered else None
    payload = encode(batch, plan, WireFormat.YSON, tablet_index=3, sequence_numbers=numbers)

    found = list(parsed(payload))
    assert len(found) == len(rows)
    for number, (got, row) in enumerate(zip(found, rows, strict=True)):
        expected = {b"$tablet_index": 3}
        if numbered:
            expected[b"$sequence_number"] = number
        expected |= {f"column{n}".encode(): value[1] for n, value in enumerate(row)}
        assert alike(got, expected)

    # Compared as bytes: to Arrow, NaN differs from NaN.
    again = decode(payload, frame)
    again.validate(full=True)
    assert encode(again, plan, WireFormat.YSON) == encode(batch, plan, WireFormat.YSON)

    start = data.draw(st.integers(0, len(rows)))
    tail = batch.take(pa.array(range(start, len(rows)), pa.int64()))
    assert encode(batch[start:], plan, WireFormat.YSON) == encode(tail, plan, WireFormat.YSON)


@thorough
@given(tables(types()))
def test_arrow_payload_holds_exactly_the_rows(table):
    """Plain columns hold what the cluster counts in, others YSON by position."""
    columns, types_drawn, rows = table
    schema = TableSchema.from_yt(columns)
    frame = arrow_schema_of(schema)
    plan = check_frame(frame, schema, target="//t", sorted=False)
    if plan.arrow_obstacles:
        return
    payload = encode(batch_of(frame, types_drawn, rows), plan, WireFormat.ARROW, tablet_index=3)
    with pa.ipc.open_stream(payload) as stream:
        found = stream.read_all()
    assert found.column("$tablet_index").to_pylist() == [3] * len(rows)
    for place, column in enumerate(columns):
        field = found.schema.field(column["name"])
        holds_yson = (field.metadata or {}).get(b"YtType") == b"yson"
        for got, row in zip(found.column(column["name"]).to_pylist(), rows, strict=True):
            expected = row[place][2]
            if expected is None:
                assert got is None
            elif holds_yson:
                assert alike(parsed(got, "node"), expected)
            elif pa.types.is_decimal(field.type):
                assert got == row[place][0]
            elif isinstance(expected, float):
                assert alike(got, expected)
            else:
                assert got == expected
                assert pa.types.is_unsigned_integer(field.type) == isinstance(expected, YsonUint64)


@thorough
@given(tables(simple_types() | simple_types().map(OptionalType)), st.data())
def test_scan_and_parser_find_the_same_columns(table, data):
    """The fast reader agrees with the parser on every column subset, however rows are closed."""
    columns, types_drawn, rows = table
    schema = TableSchema.from_yt(columns)
    frame = arrow_schema_of(schema)
    plan = check_frame(frame, schema, target="//t", sorted=False)
    payload = encode(batch_of(frame, types_drawn, rows), plan, WireFormat.YSON)
    if data.draw(st.booleans()):
        payload = payload.removesuffix(b";")
    wanted = {c.name: c.type for c in schema.columns if data.draw(st.booleans())}
    scanned, parser = scan_rows(payload, wanted), ParsedRows(payload)
    if scanned is None:
        assert not rows or any(b"{" in value for row in rows for value in texts(row))
        return
    for name, logical in wanted.items():
        fast, slow = scanned.column(name, logical), parser.column(name, logical)
        assert fast.type == slow.type
        # Equality of Arrow arrays holds no NaN equal to itself; their text does.
        assert repr(fast.to_pylist()) == repr(slow.to_pylist())


def texts(row):
    return [value[1] for value in row if isinstance(value[1], bytes)]


@thorough
@given(st.binary(max_size=60), st.data())
def test_damaged_payload_never_scans_to_other_values(noise, data):
    """Bytes that were changed are either parsed alike by both readers, or not scanned."""
    columns = [{"name": "a", "type_v3": "string"}, {"name": "b", "type_v3": "int64"}]
    schema = TableSchema.from_yt(columns)
    frame = arrow_schema_of(schema, binary_strings=True)
    plan = check_frame(frame, schema, target="//t", sorted=False)
    batch = pa.RecordBatch.from_pydict({"a": [b"x", noise, b""], "b": [1, -2, 300]}, schema=frame)
    payload = bytearray(encode(batch, plan, WireFormat.YSON))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    wanted = {c.name: c.type for c in schema.columns}
    scanned = scan_rows(bytes(payload), wanted)
    if scanned is None:
        return
    try:
        parser = ParsedRows(bytes(payload))
    except ValueError:
        pytest.fail("scanned what no parser takes")
    for name, logical in wanted.items():
        assert scanned.column(name, logical).equals(parser.column(name, logical))
