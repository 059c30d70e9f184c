"""The table of types: one record for each type without parts, with everything the package knows of it.

A further simple type is one more record here. Types with parts are in `types`; the modules that walk through
them ask the record for everything about a type without parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pyarrow as pa

from yt_exactly_once.codec import bindings, matches, values, yson_fragments
from yt_exactly_once.codec.matches import CHECKED, EXACT, TypeMatch
from yt_exactly_once.codec.yson_text import any_keys, any_values, as_any

types = pa.types

_BINARY = pa.binary()

Convert = Callable[[pa.Array], pa.Array]
Encode = Callable[[pa.Array], yson_fragments.Pieces]


def _to_bytes(array: pa.Array) -> pa.Array:
    return array.cast(_BINARY)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Scalar:
    """A type without parts; there is one object for each. It travels by pickle as its name.

    Attributes:
        name: in `type_v3`.
        match: says which columns of a DataFrame fit a column of the type.
        read_as: Arrow type that the source yields; one that Spark has.
        plain: Arrow type of plain values, which is that of an Arrow request.
        to_plain: turns values of a DataFrame into plain ones and checks each; nulls stay null.
        to_yson: encodes plain values without nulls.
        to_key: encodes plain values of keys, with equal bytes where the cluster takes them for one key;
            `None` where `to_yson` does.
        parsed: Arrow type into which values are parsed from YSON.
        from_parsed: turns a value of the YSON parser into one that Arrow takes; `None` where it is one.
        from_plain: turns parsed values into the Arrow type asked for, and checks each.
        bounds: first and last integer the cluster accepts; `None` for what does not travel as an integer.
        unit: what such an integer counts: `D` for days, `s`, `us`; empty for plain numbers.
        holds_yson: whether values are YSON of any shape; they are sent as composite values are.
        arrow_obstacle: why values of a column should not be sent as Arrow. Some versions of the proxy
            (`arrow_parser.cpp`) store such values wrongly without an error, which only a committed row
            would show. Composite values with such a type inside travel as YSON.
    """

    name: str
    match: Callable[[pa.DataType], TypeMatch]
    read_as: pa.DataType = _BINARY
    plain: pa.DataType = _BINARY
    to_plain: Convert = _to_bytes
    to_yson: Encode = yson_fragments.strings
    to_key: Encode | None = None
    parsed: pa.DataType = _BINARY
    from_parsed: Callable[[Any], Any] | None = None
    from_plain: Callable[[pa.Array, pa.DataType], pa.Array] = values.as_text
    bounds: values.Bounds | None = None
    unit: str = ""
    holds_yson: bool = False
    arrow_obstacle: str | None = None

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        if types.is_decimal(self.plain):
            return decimal, (self.plain.precision, self.plain.scale)
        return scalar_named, (self.name,)

    @property
    def described(self) -> Any:
        """The type in `type_v3`."""
        if types.is_decimal(self.plain):
            digits = {"precision": self.plain.precision, "scale": self.plain.scale}
            return {"type_name": "decimal", **digits}
        return self.name

    @property
    def is_nothing(self) -> bool:
        """Whether null is the only value."""
        return bool(types.is_null(self.plain))

    @property
    def is_floating(self) -> bool:
        """Whether NaN is a value."""
        return bool(types.is_floating(self.plain))

    @property
    def is_integer(self) -> bool:
        """Whether values are plain numbers without a fraction."""
        return self.bounds is not None and not self.unit

    @property
    def is_unsigned(self) -> bool:
        """Whether YSON holds values as unsigned integers."""
        return bool(types.is_uint64(self.parsed))


def _counting(
    name: str, plain: pa.DataType, bounds: values.Bounds, *, unit: str = "", **others: Any
) -> Scalar:
    """Return a type with values that travel as integers."""
    return Scalar(
        name=name,
        plain=plain,
        to_plain=partial(values.to_integers, target=plain, name=name, bounds=bounds, unit=unit),
        to_yson=yson_fragments.integers,
        parsed=pa.uint64() if bounds[0] == 0 else pa.int64(),
        from_plain=partial(values.as_asked, unit=unit),
        bounds=bounds,
        unit=unit,
        **others,
    )


_date = partial(
    _counting,
    unit="D",
    match=matches.only(types.is_date32, CHECKED, "cast it: CAST({x} AS DATE)"),
    read_as=pa.date32(),
)
_instant = partial(_counting, match=matches.match_instant, read_as=pa.timestamp("us", tz="UTC"))
_interval = partial(
    _counting,
    plain=pa.int64(),
    unit="us",
    match=matches.only(
        types.is_duration,
        CHECKED,
        "give a day-time interval, for instance make_dt_interval(0, 0, 0, seconds)",
    ),
    read_as=pa.duration("us"),
)


def _integer(plain: pa.DataType, read_as: pa.DataType | None = None) -> Scalar:
    """Return the type of the same name; Spark has no unsigned ones, so they are read as wider ones."""
    bits = plain.bit_width
    bounds = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return _counting(
        str(plain),
        plain,
        (0, 2**bits - 1) if types.is_unsigned_integer(plain) else bounds,
        match=partial(matches.match_integer, integer=plain),
        read_as=read_as or plain,
    )


def _floating(plain: pa.DataType) -> Scalar:
    return Scalar(
        name=str(plain),
        match=partial(matches.match_floating, floating=plain),
        read_as=plain,
        plain=plain,
        to_plain=lambda array: array.cast(plain),
        to_yson=yson_fragments.doubles,
        to_key=yson_fragments.canonical_doubles,
        parsed=pa.float64(),
        from_plain=values.as_asked,
    )


def _zoned(name: str) -> Scalar:
    """Return a type with a time zone. Spark has none like it: the bytes of the cluster are kept."""
    remedy = "types with a time zone cannot be written; use a timestamp column"
    return Scalar(name=name, match=lambda _: matches.refused(remedy))


def _nothing(name: str) -> Scalar:
    return Scalar(
        name=name,
        match=lambda _: matches.refused("only nulls fit: leave the column out"),
        read_as=pa.null(),
        plain=pa.null(),
        to_plain=lambda array: array.cast(pa.null()),
        to_yson=yson_fragments.nothing,
        parsed=pa.null(),
        from_plain=values.as_asked,
    )


_DATE_END = 49_673
_DATE32_END = 53_375_808
_DAY = 86_400
_DAY_US = _DAY * 1_000_000
_TIMESTAMP_END = _DATE_END * _DAY_US
_TIMESTAMP64_START, _TIMESTAMP64_END = (-_DATE32_END - 1) * _DAY_US, _DATE32_END * _DAY_US
_INTERVAL64_END = _TIMESTAMP64_END - _TIMESTAMP64_START


def _named(*scalars: Scalar) -> Mapping[str, Scalar]:
    return {scalar.name: scalar for scalar in scalars}


SCALARS: Mapping[str, Scalar] = _named(
    _integer(pa.int8()),
    _integer(pa.int16()),
    _integer(pa.int32()),
    _integer(pa.int64()),
    _integer(pa.uint8(), pa.int16()),
    _integer(pa.uint16(), pa.int32()),
    _integer(pa.uint32(), pa.int64()),
    _integer(pa.uint64(), pa.decimal128(20, 0)),
    _floating(pa.float32()),
    _floating(pa.float64()),
    Scalar(
        name="bool",
        match=matches.only(types.is_boolean, EXACT, "cast it: CAST({x} AS BOOLEAN)"),
        read_as=pa.bool_(),
        plain=pa.bool_(),
        to_plain=lambda array: array.cast(pa.bool_()),
        to_yson=yson_fragments.booleans,
        parsed=pa.bool_(),
        from_plain=values.as_asked,
    ),
    Scalar(
        name="string",
        match=partial(matches.match_bytes, text=EXACT, binary=EXACT),
        read_as=pa.string(),
        from_plain=values.as_bytes,
    ),
    Scalar(
        name="utf8",
        match=partial(matches.match_bytes, text=EXACT, binary=CHECKED),
        read_as=pa.string(),
        to_plain=values.to_text,
    ),
    Scalar(
        name="json",
        match=partial(matches.match_bytes, text=CHECKED, binary=CHECKED),
        read_as=pa.string(),
        to_plain=values.to_json,
    ),
    Scalar(
        name="uuid", match=matches.match_uuid, to_plain=values.to_uuids, from_plain=values.as_uuids
    ),
    _date("date", pa.uint32(), (0, _DATE_END - 1)),
    _instant("datetime", pa.uint32(), (0, _DATE_END * _DAY - 1), unit="s"),
    _instant("timestamp", pa.uint64(), (0, _TIMESTAMP_END - 1), unit="us"),
    _interval("interval", bounds=(1 - _TIMESTAMP_END, _TIMESTAMP_END - 1)),
    _date("date32", pa.int32(), (-_DATE32_END - 1, _DATE32_END - 1)),
    _instant(
        "datetime64", pa.int64(), ((-_DATE32_END - 1) * _DAY, _DATE32_END * _DAY - 1), unit="s"
    ),
    _instant("timestamp64", pa.int64(), (_TIMESTAMP64_START, _TIMESTAMP64_END - 1), unit="us"),
    _interval(
        "interval64",
        bounds=(-_INTERVAL64_END, _INTERVAL64_END),
        arrow_obstacle="no proxy takes interval64 as Arrow",
    ),
    Scalar(
        name="yson",
        match=matches.match_any,
        to_plain=lambda array: array,
        to_yson=any_values,
        to_key=any_keys,
        from_parsed=bindings.write_value,
        from_plain=as_any,
        holds_yson=True,
        arrow_obstacle="older proxies store the bytes of any values as strings",
    ),
    *(_zoned(f"tz_{name}") for name in ("date", "datetime", "timestamp")),
    *(_zoned(f"tz_{name}") for name in ("date32", "datetime64", "timestamp64")),
    _nothing("null"),
    _nothing("void"),
)
"""Every type without parts and parameters, by name."""

_MOST_DECIMAL_DIGITS = 76
_MOST_DECIMAL128_DIGITS = 38
_MOST_ARROW_DIGITS = 35


def scalar_named(name: str) -> Scalar:
    """Return the type of a name; raise `ValueError` if there is none."""
    if name not in SCALARS:
        raise ValueError(f"unknown type name {name!r}")
    return SCALARS[name]


@cache
def decimal(precision: int, scale: int) -> Scalar:
    """Return the decimals of a precision and scale; raise `ValueError` if there are none."""
    name = f"decimal({precision}, {scale})"
    if not (0 < precision <= _MOST_DECIMAL_DIGITS and 0 <= scale <= precision):
        raise ValueError(f"impossible {name}")
    make = pa.decimal128 if precision <= _MOST_DECIMAL128_DIGITS else pa.decimal256
    kind = make(precision, scale)
    wide = f"older proxies store decimals of more than {_MOST_ARROW_DIGITS} digits as text"
    return Scalar(
        name=name,
        match=partial(matches.match_decimal, decimal=kind),
        read_as=kind,
        plain=kind,
        to_plain=partial(values.to_decimals, target=kind),
        to_yson=lambda array: yson_fragments.fixed_strings(values.to_stored(array)),
        from_plain=values.from_stored,
        arrow_obstacle=wide if precision > _MOST_ARROW_DIGITS else None,
    )
