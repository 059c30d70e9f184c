"""Logical types parsed from column descriptions."""

import pickle
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from tests import kinds
from tests.kinds import listed, optional
from yt_exactly_once.codec import types
from yt_exactly_once.codec.rows import WireFormat, decode, encode
from yt_exactly_once.codec.scalars import SCALARS, decimal
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, check_frame
from yt_exactly_once.codec.values import to_integers
from yt_exactly_once.errors import EncodingError, SchemaMismatchError

INT, TEXT = SCALARS["int64"], SCALARS["utf8"]
A = types.Member("a", INT)
PAIR = types.numbered((INT, TEXT))
LABEL = {"type_name": "tagged", "tag": "t"}
DESCRIBED = [
    ("int64", INT, "int64"),
    ({"type_name": "int64"}, INT, "int64"),
    (kinds.decimal(10, 2), decimal(10, 2), "decimal(10, 2)"),
    (optional("utf8"), types.OptionalType(TEXT), "optional<utf8>"),
    (listed("int64"), types.ListType(INT), "list<int64>"),
    (kinds.dict_of("utf8", "int64"), types.DictType(TEXT, INT), "dict<utf8, int64>"),
    (kinds.struct(a="int64"), types.StructType((A,)), "struct<a: int64>"),
    (kinds.tuple_of("int64", "utf8"), types.StructType(PAIR, named=False), "tuple<int64, utf8>"),
    (kinds.variant(a="int64"), types.VariantType((A,), named=True), "variant<a: int64>"),
    (kinds.variant("int64"), types.VariantType(PAIR[:1], named=False), "variant<int64>"),
    ({**LABEL, "item": "int64"}, INT, "int64"),
]


@pytest.mark.parametrize(("description", "logical", "shown"), DESCRIBED)
def test_described_type_is_parsed_shown_and_described_again(description, logical, shown):
    """A type survives the way through the tree, and pickling into a task."""
    assert types.parse_type(description) == logical
    assert str(logical) == shown
    assert types.parse_type(types.render_type(logical)) == logical
    assert pickle.loads(pickle.dumps(logical)) == logical


@pytest.mark.parametrize(
    ("column", "logical"),
    [
        ({"name": "c", "type": "boolean", "required": True}, SCALARS["bool"]),
        ({"name": "c", "type": "any", "required": False}, types.OptionalType(SCALARS["yson"])),
        ({"name": "c", "type": "int64"}, types.OptionalType(INT)),
        ({"name": "c", "type": "null", "required": False}, SCALARS["null"]),
        ({"name": "c", "type": "int8", "required": True, "type_v3": "int64"}, INT),
    ],
)
def test_column_in_either_spelling_is_parsed(column, logical):
    """`type_v3` decides; without it `type` and `required` do."""
    assert types.parse_column_type(column) == logical


@pytest.mark.parametrize(
    "description",
    [
        "boolean",
        "int128",
        {"type_name": "list"},
        kinds.decimal(77, 0),
        kinds.decimal(5, 6),
        None,
        7,
    ],
)
def test_unknown_type_is_refused_with_the_column(description):
    """A type nobody understands is told by column, not guessed."""
    with pytest.raises(SchemaMismatchError, match="not understood") as caught:
        types.parse_column_type({"name": "price", "type_v3": description})
    assert caught.value.where["column"] == "price"


def test_ranges_are_those_of_the_cluster():
    """Dates end with 2105; the wide types are symmetric but for one day."""
    assert SCALARS["uint64"].bounds == (0, 2**64 - 1)
    assert SCALARS["date"].bounds == (0, 49_672)
    assert SCALARS["timestamp"].bounds == (0, 49_673 * 86_400_000_000 - 1)
    assert SCALARS["interval"].bounds == (1 - 49_673 * 86_400_000_000, 49_673 * 86_400_000_000 - 1)
    assert SCALARS["date32"].bounds == (-53_375_809, 53_375_807)
    low, high = SCALARS["timestamp64"].bounds
    assert SCALARS["interval64"].bounds == (-(high - low + 1), high - low + 1)


def test_nullability_and_plainness_look_through_labels():
    """A label changes neither whether null fits nor how a value travels."""
    label = types.parse_type({**LABEL, "item": optional({**LABEL, "item": "int64"})})
    assert types.is_nullable(label)
    assert types.required(label) == INT
    assert types.plain_scalar_of(label)
    assert not types.plain_scalar_of(types.OptionalType(types.OptionalType(INT)))
    assert not types.plain_scalar_of(types.OptionalType(SCALARS["yson"]))
    assert not types.is_nullable(types.ListType(types.OptionalType(INT)))


def test_a_further_type_is_one_record(monkeypatch):
    """Read, matched, written and read back, alone and inside others, with its bounds."""
    port = partial(to_integers, target=pa.uint16(), name="port", bounds=(1, 1023))
    record = replace(SCALARS["uint16"], name="port", to_plain=port, bounds=(1, 1023))
    monkeypatch.setitem(SCALARS, "port", record)
    columns = [{"name": "a", "type_v3": "port"}, {"name": "b", "type_v3": listed("port")}]
    table = TableSchema.from_yt(columns)
    frame = arrow_schema_of(table)
    assert frame.types == [pa.int32(), pa.list_(pa.field("element", pa.int32(), nullable=False))]
    plan = check_frame(frame, table, target="//t", sorted=False)
    rows = pa.RecordBatch.from_pydict({"a": [80, 443], "b": [[], [22, 1023]]}, schema=frame)
    assert decode(encode(rows, plan, WireFormat.YSON), frame).to_pylist() == rows.to_pylist()
    with pytest.raises(SchemaMismatchError, match="whole number"):
        check_frame(pa.schema([("a", pa.string()), frame[1]]), table, target="//t", sorted=False)
    unfit = pa.RecordBatch.from_pydict({"a": [80], "b": [[1024]]}, schema=frame)
    with pytest.raises(EncodingError, match=r"column b\[\].* outside the range of port"):
        encode(unfit, plan, WireFormat.ARROW)
