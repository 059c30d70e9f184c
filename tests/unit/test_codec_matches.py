"""The table of type pairs, pair by pair."""

import pyarrow as pa
import pytest

from tests.kinds import decimal, dict_of, listed, optional, struct, tuple_of, variant
from yt_exactly_once.codec.arrow_types import arrow_type_of, logical_type_of, match_types
from yt_exactly_once.codec.matches import Fit
from yt_exactly_once.codec.scalars import SCALARS
from yt_exactly_once.codec.types import parse_type

UTC = pa.timestamp("us", "UTC")
YSON = optional("yson")


STRUCT = struct(a="int8", b=optional("utf8"))
VARIANT = variant(a="int8", b="utf8")
TUPLE = tuple_of("int8", "utf8")
DICT = dict_of("utf8", "int64")

EXACT = [
    (pa.int32(), "int32"),
    (pa.uint64(), "uint64"),
    (pa.float32(), "float"),
    (pa.float64(), "double"),
    (pa.bool_(), "bool"),
    (pa.string(), "string"),
    (pa.large_string(), "utf8"),
    (pa.binary(), "string"),
    (pa.binary(16), "uuid"),
    (pa.decimal128(10, 2), decimal(10, 2)),
    (pa.null(), optional("int64")),
    (pa.list_(pa.int64()), listed("int64")),
    (pa.map_(pa.string(), pa.int64()), DICT),
    (pa.struct([("b", pa.string()), ("a", pa.int8())]), STRUCT),
    (pa.struct([("a", pa.int8())]), STRUCT),
    (pa.struct([("_va", pa.int8())]), VARIANT),
    (pa.struct([("_1", pa.int8()), ("_2", pa.string())]), TUPLE),
    (pa.struct([("value", pa.int8())]), optional(optional("int8"))),
    (pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.bool_()))])), YSON),
]
WIDENING = [
    (pa.int8(), "int64"),
    (pa.uint32(), "int64"),
    (pa.uint8(), "uint16"),
    (pa.int32(), "double"),
    (pa.int16(), "float"),
    (pa.float32(), "double"),
    (pa.decimal128(9, 2), decimal(38, 2)),
    (pa.decimal128(38, 2), decimal(60, 2)),
    (pa.list_(pa.int32()), listed(optional("int64"))),
]
CHECKED = [
    (pa.int64(), "uint64"),
    (pa.int16(), "uint8"),
    (pa.decimal128(20, 0), "uint64"),
    (pa.binary(), "utf8"),
    (pa.string(), "json"),
    (pa.binary(), "uuid"),
    (pa.string(), "uuid"),
    (pa.binary(), YSON),
    (pa.date32(), "date"),
    (pa.date32(), "date32"),
    (UTC, "datetime"),
    (pa.timestamp("ns", "Europe/Paris"), "timestamp"),
    (UTC, "timestamp64"),
    (pa.duration("us"), "interval"),
    (pa.duration("us"), "interval64"),
    (pa.struct([("_va", pa.int16()), ("_vb", pa.binary())]), variant(a="uint8", b="string")),
]
REFUSED = [
    (pa.int64(), "int32", "cast to a narrower type", ""),
    (pa.uint64(), "int64", "cast to a narrower type", ""),
    (pa.int32(), "uint8", "cast to a narrower type", ""),
    (pa.decimal128(21, 0), "uint64", "cast to a narrower type", ""),
    (pa.decimal128(20, 0), "uint32", "cast to a narrower type", ""),
    (pa.float64(), "int64", "whole number", ""),
    (pa.float64(), "float", "CAST({x} AS FLOAT)", ""),
    (pa.int64(), "double", "CAST({x} AS DOUBLE)", ""),
    (pa.int8(), "bool", "CAST({x} AS BOOLEAN)", ""),
    (pa.int64(), "utf8", "CAST({x} AS STRING)", ""),
    (pa.int64(), "uuid", "16 bytes", ""),
    (pa.binary(15), "uuid", "16 bytes", ""),
    (UTC, "date", "CAST({x} AS DATE)", ""),
    (pa.int64(), "timestamp", "timestamp_micros({x})", ""),
    (pa.timestamp("us"), "timestamp", "local time", ""),
    (pa.int64(), "interval", "interval", ""),
    (pa.decimal128(10, 2), decimal(10, 3), "CAST({x} AS DECIMAL(10, 3))", ""),
    (pa.decimal128(11, 2), decimal(10, 2), "CAST({x} AS DECIMAL(10, 2))", ""),
    (pa.float64(), decimal(10, 2), "CAST({x} AS DECIMAL(10, 2))", ""),
    (pa.null(), "int64", "give the column values", ""),
    (pa.int64(), "void", "leave the column out", ""),
    (pa.binary(), "tz_date", "time zone", ""),
    (pa.map_(pa.string(), pa.int64()), listed("int64"), "give an array", ""),
    (pa.list_(pa.int64()), DICT, "give a map", ""),
    (pa.list_(pa.int64()), listed("int8"), "cast to a narrower type", "[]"),
    (pa.map_(pa.string(), pa.string()), DICT, "whole number", "[value]"),
    (pa.map_(pa.int8(), pa.int64()), DICT, "CAST({x} AS STRING)", "[key]"),
    (pa.string(), STRUCT, "fields a, b", ""),
    (pa.struct([("b", pa.string())]), STRUCT, "add the field a", ""),
    (pa.struct([("a", pa.int8()), ("c", pa.int8())]), STRUCT, "drop or rename the fields: c", ""),
    (pa.struct([("a", pa.int8()), ("a", pa.int8())]), STRUCT, "duplicates", ""),
    (pa.struct([("_1", pa.int8())]), TUPLE, "add the field _2", ""),
    (pa.struct([("_va", pa.string())]), VARIANT, "whole number", "._va"),
    (pa.int8(), optional(optional("int8")), "with the fields value", ""),
    (pa.date32(), YSON, "YSON has no such type", ""),
    (pa.list_(pa.binary()), YSON, "YSON has no such type", "[]"),
    (pa.map_(pa.int8(), pa.int8()), YSON, "string keys", "[key]"),
    (pa.list_(pa.struct([("a", pa.int8()), ("a", pa.int8())])), YSON, "duplicates", "[]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arrow", "description", "fit"),
    [(*pair, Fit.EXACT) for pair in EXACT]
    + [(*pair, Fit.WIDENING) for pair in WIDENING]
    + [(*pair, Fit.CHECKED) for pair in CHECKED],
)
def test_pair_without_loss_is_allowed(arrow, description, fit):
    """The match says how much care the pair asks for."""
    match = match_types(arrow, parse_type(description))
    assert (match.fit, match.remedy) == (fit, "")


@pytest.mark.parametrize(("arrow", "description", "remedy", "path"), REFUSED)
def test_pair_with_loss_is_refused_with_a_remedy(arrow, description, remedy, path):
    """A refusal says what to do, and where inside the column."""
    match = match_types(arrow, parse_type(description))
    assert match.fit is Fit.REFUSED
    assert remedy in match.remedy
    assert match.path == path


@pytest.mark.parametrize("name", sorted(SCALARS.keys() - {"null", "void"}))
def test_column_read_may_be_written_back(name):
    """What a source yields for a type, a sink takes for the same type; zoned types are read-only."""
    match = match_types(arrow_type_of(SCALARS[name]), SCALARS[name])
    assert (match.fit is Fit.REFUSED) == name.startswith("tz_")


@pytest.mark.parametrize(
    "arrow",
    [
        pa.int64(),
        pa.uint64(),
        pa.string(),
        pa.date32(),
        UTC,
        pa.duration("us"),
        pa.decimal128(38, 10),
        pa.list_(pa.struct([("a", pa.map_(pa.string(), UTC))])),
    ],
)
def test_created_column_takes_the_type_it_was_created_from(arrow):
    """A table made for a frame fits that frame."""
    assert match_types(arrow, logical_type_of(pa.field("c", arrow))).fit is not Fit.REFUSED
