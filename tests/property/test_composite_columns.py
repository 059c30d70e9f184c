"""Composite columns by vector: the bytes and the errors are those of the values one by one."""

import io
import sys

import pyarrow as pa
import pytest
import yt.yson
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.property.random_tables import ANY, types, values
from yt_exactly_once.codec.arrow_types import arrow_type_of
from yt_exactly_once.codec.types import VariantType, render_type, scalar_of, untagged
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import arrow_rows
from yt_exactly_once.local.tables import composite_columns, vectors
from yt_exactly_once.local.tables.encoding import encode_column
from yt_exactly_once.local.tables.schema import parse_schema

COMPOSITES = types(76).filter(lambda logical: scalar_of(logical) is None)


def column_of(logical):
    return parse_schema([{"name": "c", "type_v3": render_type(logical)}]).columns[0]


def one_by_one(column, blobs):
    """Return stored values as they are made without vectors; None if one is refused."""
    try:
        parsed = [
            None if b is None else yt.yson.loads(b, encoding=None, always_create_attributes=False)
            for b in blobs
        ]
        found, error = encode_column(column, parsed)
    except (yt.yson.YsonError, YtError, ValueError, TypeError):
        return None
    return None if error else found


def parts_of(logical):
    """Yield a type and all types inside."""
    yield untagged(logical)
    inner = untagged(logical)
    for name in getattr(inner, "__dataclass_fields__", ()):
        part = getattr(inner, name)
        for one in part if isinstance(part, tuple) else (part,):
            if hasattr(one, "__dataclass_fields__"):
                yield from parts_of(getattr(one, "type", one))


@st.composite
def columns(draw):
    logical = draw(COMPOSITES)
    drawn = draw(st.lists(values(logical), min_size=1, max_size=6))
    blobs = [None if v is None else yt.yson.dumps(v, yson_format="binary") for _, _, v in drawn]
    return logical, drawn, blobs


@given(columns())
def test_valid_column_is_stored_as_its_values_are_one_by_one(table):
    """All types but `yson` and variants have a vector, and nulls stay where they are."""
    logical, _, blobs = table
    column = column_of(logical)
    found = composite_columns.stored(pa.array(blobs, pa.binary()), column.type_v3)
    if found is None:
        parts = list(parts_of(logical))
        assert ANY.item in parts or any(isinstance(part, VariantType) for part in parts)
        return
    assert found.array.to_pylist() == one_by_one(column, blobs)
    given_again, error = encode_column(column, found.to_pylist())
    assert (given_again, error) == (found.array.to_pylist(), None)


def loaded(column, stream, most, monkeypatch):
    """Return what a request becomes if so many values and more are taken by vector."""
    monkeypatch.setattr(arrow_rows, "_MANY_VALUES", most)
    described = {"name": "c", "type": column.wire_type, "type_v3": column.type_v3}
    try:
        rows = arrow_rows.loads(stream, [described])
        found, error = vectors.encode(column, rows.columns["c"])
    except YtError as error:
        return str(error.to_dict())
    return str(error.to_dict()) if error else found.to_pylist()


@given(columns())
def test_arrow_lists_structs_and_maps_are_stored_as_their_values_are_one_by_one(table):
    """With the same error where one is refused: Arrow has no variants, and few of the cluster's types."""
    logical, drawn, _ = table
    kind = arrow_type_of(logical, binary_strings=True)
    try:
        array = pa.array([v for v, _, _ in drawn], kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        assume(False)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("c", kind)])) as writer:
        writer.write_table(pa.table({"c": array}, pa.schema([("c", kind)])))
    column = column_of(logical)
    with pytest.MonkeyPatch.context() as patch:
        by_vector = loaded(column, sink.getvalue(), 0, patch)
        assert by_vector == loaded(column, sink.getvalue(), sys.maxsize, patch)
