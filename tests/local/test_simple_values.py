"""What each simple type takes, in columns and inside composite values, by every input format."""

import math
from typing import Any

import pyarrow as pa
import pytest
from yt import yson
from yt.wrapper import JsonFormat, YtResponseError

from tests.arrow_streams import stream_of
from tests.contract.tables import columns, create, key_columns
from tests.kinds import decimal, listed, optional, tuple_of
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables.encoding import encode_column
from yt_exactly_once.local.tables.schema import parse_schema

YSON, JSON, ARROW = range(3)
DAY = 86_400
US = 1_000_000
TIMESTAMP_END = 49_673 * DAY * US
DATE32 = (-53_375_809, 53_375_807)
TIMESTAMP64 = (DATE32[0] * DAY * US, (DATE32[1] + 1) * DAY * US - 1)

# First and last value of each type (validate_logical_type.h).
ENDS = {
    "int8": (-128, 127),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint8": (0, 255),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "date": (0, 49_672),
    "datetime": (0, 49_673 * DAY - 1),
    "timestamp": (0, TIMESTAMP_END - 1),
    "interval": (1 - TIMESTAMP_END, TIMESTAMP_END - 1),
    "date32": DATE32,
    "datetime64": (DATE32[0] * DAY, (DATE32[1] + 1) * DAY - 1),
    "timestamp64": TIMESTAMP64,
    "interval64": (TIMESTAMP64[0] - TIMESTAMP64[1] - 1, TIMESTAMP64[1] - TIMESTAMP64[0] + 1),
}


def refusal(kind: Any, value: Any) -> str | None:
    """Return why a value of a type is refused, None when it is taken."""
    (column,) = parse_schema([{"name": "c", "type_v3": kind}]).columns
    try:
        _, error = encode_column(column, [value])
    except YtError as raised:
        error = raised
    if error is None:
        return None
    assert error.contains(Code.SCHEMA_VIOLATION)
    (inner,) = error.inner
    while inner.inner:
        (inner,) = inner.inner
    return inner.message


def sized(kind: str, value: int) -> Any:
    return yson.YsonUint64(value) if ENDS[kind][0] == 0 and value >= 0 else value


@pytest.mark.parametrize("kind", ENDS)
def test_integer_types_end_where_the_server_says(kind: str) -> None:
    """Both ends are taken, the next values are not, in a column and inside a list."""
    low, high = ENDS[kind]
    for value, is_taken in ((low, True), (high, True), (low - 1, False), (high + 1, False)):
        given = sized(kind, value)
        for type_v3, item in ((kind, given), (listed(kind), [given])):
            assert (refusal(type_v3, item) is None) is is_taken, (type_v3, item)


@pytest.mark.parametrize(
    ("kind", "taken", "refused"),
    [
        ("float", [3.14e35, -3.4e38, math.inf], [3.14e39, -3.14e39]),
        ("utf8", ["фу".encode()], [b"\244"]),
        ("uuid", [b"0" * 16], [b"0" * 15, b""]),
        (
            "json",
            [b'"foo"', b"42", b"null", b'[142, 53, {"foo":"bar"}]'],
            [b"Infinity", b"1e999", b"[142, 53,]", b"[142; 53]", b'"\xff"'],
        ),
        (
            decimal(3, 2),
            [b"\x80\0\1\x3a", b"\xff\xff\xff\xff", b"\0\0\0\2"],
            [b"\x80\0\x11\x3a", b"\x80\x11\x3a", b"", b"\0\0\0\1"],
        ),
        (
            decimal(35, 0),
            [b"\x80\x13\x42\x61\x72\xc7\x4d\x82\x2b\x87\x8f\xe7\xff\xff\xff\xff"],
            [b"\x80\x13\x42\x61\x72\xc7\x4d\x82\x2b\x87\x8f\xe8\0\0\0\0", b"\x80\0\1\x3a"],
        ),
    ],
    ids=str,
)
def test_other_simple_types_take_what_the_server_takes(
    kind: Any, taken: list[Any], refused: list[Any]
) -> None:
    """The rules hold for whole columns and for the parts of composite values."""
    as_tuple = tuple_of(kind)
    for value in taken:
        assert (refusal(kind, value), refusal(as_tuple, [value])) == (None, None), value
    for value in refused:
        assert refusal(kind, value), value
        assert refusal(as_tuple, [value]), value


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("int64", yson.YsonUint64(1)),
        ("uint64", 1),
        ("yson", None),
        ("yson", yson.to_yson_type(1, {"a": 1})),
        (optional("null"), []),
        (optional("null"), [[None]]),
    ],
    ids=str,
)
def test_part_of_a_composite_is_not_converted(item: Any, value: Any) -> None:
    """Inside a composite value signedness counts, and a value is not null and has no attributes."""
    assert refusal(listed(item), [value])


def test_optional_null_is_a_list_of_one() -> None:
    """Otherwise its two nulls could not be told apart."""
    kind = listed(optional("null"))
    assert refusal(kind, [None, [None]]) is None


def arrow(kind: pa.DataType, key: int, value: int) -> bytes:
    columns = {"k": pa.array([key]), "v": pa.array([value], pa.int64())}
    if pa.types.is_date32(kind):
        columns["v"] = columns["v"].cast(pa.int32())
    return stream_of(pa.table(columns | {"v": columns["v"].view(kind)}))


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("date", pa.date32()),
        ("date32", pa.date32()),
        ("datetime64", pa.timestamp("s")),
        ("timestamp", pa.timestamp("us")),
        ("timestamp64", pa.timestamp("us")),
        ("interval", pa.int64()),
    ],
)
def test_ends_are_the_same_in_every_input_format(
    client: Any, tmp: str, kind: str, sent: pa.DataType
) -> None:
    """YSON, JSON and Arrow rows meet one check."""
    path = create(client, f"{tmp}/t", [*key_columns(k="int64"), *columns(v=kind)])

    def insert(form: int, key: int, value: int) -> None:
        if form == ARROW:
            client.insert_rows(path, arrow(sent, key, value), format="arrow", raw=True)
        else:
            chosen = JsonFormat() if form == JSON else None
            client.insert_rows(path, [{"k": key, "v": value}], format=chosen)

    low, high = ENDS[kind]
    for form in (YSON, JSON, ARROW):
        insert(form, form, low)
        insert(form, form + 10, high)
        for value in (low - 1, high + 1):
            with pytest.raises(YtResponseError, match=r"range|type conversion"):
                insert(form, 5, value)
    found = client.lookup_rows(path, [{"k": k} for k in (0, 1, 2, 10, 11, 12)])
    assert [row["v"] for row in found] == [low] * 3 + [high] * 3
