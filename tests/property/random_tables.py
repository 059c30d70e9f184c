"""Random table schemas and rows, as Arrow takes them and as YSON has them.

Built without the codec that they test: it lends its vocabulary of types and nothing else.
"""

import json
from decimal import Context, Decimal

import pyarrow as pa
import yt.yson
from hypothesis import strategies as st
from yt.yson.yson_types import YsonUint64

from yt_exactly_once.codec import types as yt_types
from yt_exactly_once.codec.scalars import SCALARS, Scalar, decimal

SIMPLE = sorted(
    set(SCALARS) - {"yson", "null", "void", *(name for name in SCALARS if "tz_" in name)}
)
ANY = yt_types.OptionalType(SCALARS["yson"])
JSON = SCALARS["json"]
WIDE = Context(prec=80)
SPARK_DIGITS = 38


def simple_types(max_digits=SPARK_DIGITS):
    decimals = st.integers(1, max_digits).flatmap(
        lambda digits: st.integers(0, digits).map(lambda scale: decimal(digits, scale))
    )
    return st.sampled_from(SIMPLE).map(SCALARS.get) | decimals


def members(types):
    names = st.lists(st.sampled_from("abcdé"), min_size=1, max_size=3, unique=True)
    return names.flatmap(
        lambda chosen: st.tuples(
            *[types.map(lambda t, name=name: yt_types.Member(name, t)) for name in chosen]
        )
    )


def unnamed(types):
    return st.lists(types, min_size=1, max_size=3).map(yt_types.numbered)


def types(max_digits=SPARK_DIGITS):
    """Every type that can be written, nested as deep as five leaves allow."""
    simple = simple_types(max_digits)

    def composite(inner):
        return st.one_of(
            inner.map(yt_types.OptionalType),
            inner.map(yt_types.ListType),
            members(inner).map(yt_types.StructType),
            unnamed(inner).map(lambda found: yt_types.StructType(found, named=False)),
            members(inner).map(lambda found: yt_types.VariantType(found, named=True)),
            unnamed(inner).map(lambda found: yt_types.VariantType(found, named=False)),
            # The cluster takes no dicts with JSON for keys.
            st.tuples(simple.filter(lambda key: key != JSON), inner).map(
                lambda p: yt_types.DictType(*p)
            ),
        )

    return st.recursive(simple | st.just(ANY), composite, max_leaves=5)


def values(logical):  # noqa: PLR0911 - a case per kind
    """Draw triples: the value as Arrow takes it, and as YSON has it by name and by position."""
    match logical:
        case Scalar() if not pa.types.is_decimal(logical.plain):
            return simple_values(logical.name)
        case Scalar(plain=kind):
            precision, scale = kind.precision, kind.scale
            return st.integers(1 - 10**precision, 10**precision - 1).map(
                lambda number: same(
                    Decimal(number).scaleb(-scale, WIDE), stored_decimal(number, precision)
                )
            )
        case yt_types.OptionalType(item) if yt_types.is_nullable(item):
            inner = values(item).map(lambda v: ({"value": v[0]}, [v[1]], [v[2]]))
            return st.just((None, None, None)) | inner
        case yt_types.OptionalType(item):
            return st.just((None, None, None)) | values(item)
        case yt_types.ListType(item):
            return st.lists(values(item), max_size=3).map(transposed)
        case yt_types.StructType(parts, named):
            return st.tuples(*[values(part.type) for part in parts]).map(
                lambda found: (
                    {part.name: v[0] for part, v in zip(parts, found, strict=True)},
                    {part.name.encode(): v[1] for part, v in zip(parts, found, strict=True)}
                    if named
                    else [v[1] for v in found],
                    [v[2] for v in found],
                )
            )
        case yt_types.DictType(key, value):
            pairs = st.lists(st.tuples(values(key), values(value)), max_size=3)
            return pairs.map(
                lambda found: (
                    [(k[0], v[0]) for k, v in found],
                    [[k[1], v[1]] for k, v in found],
                    [[k[2], v[2]] for k, v in found],
                )
            )
        case yt_types.VariantType(alternatives, named):
            return st.one_of(
                [chosen(index, one, named=named) for index, one in enumerate(alternatives)]
            )


def chosen(index, one, *, named):
    def shape(v):
        inner = {"value": v[0]} if yt_types.is_nullable(one.type) else v[0]
        tag = one.name.encode() if named else index
        return {f"_v{one.name}": inner}, [tag, v[1]], [index, v[2]]

    return values(one.type).map(shape)


def transposed(found):
    return tuple([list(v) for v in zip(*found, strict=True)]) if found else ([], [], [])


def same(arrow, yson):
    return arrow, yson, yson


def stored_decimal(number, precision):
    width = next(w for most, w in ((9, 4), (18, 8), (38, 16), (76, 32)) if precision <= most)
    return (number + (1 << (8 * width - 1))).to_bytes(width, "big")


def simple_values(name):
    if name == "yson":
        return free_values().map(lambda v: (yt.yson.dumps(v, yson_format="binary"), v, v))
    alike = {
        "bool": st.booleans(),
        "float": st.floats(width=32),
        "double": st.floats(),
        "json": documents().map(str.encode),
        "utf8": texts().map(str.encode),
        "string": texts().map(str.encode) | st.binary(max_size=200),
        "uuid": st.binary(min_size=16, max_size=16),
    }
    if name in alike:
        return alike[name].map(lambda v: same(v, v))
    low, high = SCALARS[name].bounds
    numbers = st.sampled_from([low, high, 0, 1, 127, 128]) | st.integers(low, high)
    numbers = numbers.filter(lambda v: low <= v <= high)
    if name == "uint64":
        return numbers.map(lambda v: same(Decimal(v), YsonUint64(v)))
    if low == 0:
        return numbers.map(lambda v: same(v, YsonUint64(v)))
    return numbers.map(lambda v: same(v, v))


def texts():
    """Draw texts, a few of them far longer than what surrounds them."""
    longest = st.tuples(st.sampled_from("aж\0"), st.integers(1_000, 20_000)).map(
        lambda p: p[0] * p[1]
    )
    return st.one_of(st.just(""), *[st.text(max_size=200)] * 8, longest)


def documents():
    """Draw JSON, as texts."""
    scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20)
    values = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=5,
    )
    return st.builds(
        lambda value, escaped: json.dumps(value, ensure_ascii=escaped), values, st.booleans()
    )


def free_values():
    """Draw what `yson` columns hold; null is no value but its absence."""
    numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**64 - 1).map(YsonUint64)
    scalars = numbers | st.floats() | st.booleans() | st.binary(max_size=20)
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner | st.none(), max_size=3)
            | st.dictionaries(st.binary(max_size=5), inner, max_size=3)
        ),
        max_leaves=5,
    )


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
    types_drawn = draw(st.lists(column_types, min_size=draw(st.integers(1, 3)), max_size=4))
    columns = [
        {"name": f"column{n}", "type_v3": yt_types.render_type(logical)}
        for n, logical in enumerate(types_drawn)
    ]
    least = draw(st.sampled_from((0, 2, 4)))
    rows = draw(st.lists(st.tuples(*map(values, types_drawn)), min_size=least, max_size=6))
    return columns, types_drawn, rows


def scaled(logical, value):  # noqa: PLR0911 - a case per kind
    """Bring drawn dates and instants to the unit Arrow counts in."""
    match logical:
        case Scalar(name=name) if name in UNITS:
            return value * UNITS[name]
        case _ if value is None:
            return None
        case yt_types.OptionalType(item) if yt_types.is_nullable(item):
            return {"value": scaled(item, value["value"])}
        case yt_types.OptionalType(item):
            return scaled(item, value)
        case yt_types.ListType(item):
            return [scaled(item, one) for one in value]
        case yt_types.StructType(parts):
            return {part.name: scaled(part.type, value[part.name]) for part in parts}
        case yt_types.DictType(key, item):
            return [(scaled(key, k), scaled(item, v)) for k, v in value]
        case yt_types.VariantType(alternatives):
            return {
                f"_v{one.name}": scaled(yt_types.OptionalType(one.type), value[f"_v{one.name}"])
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
