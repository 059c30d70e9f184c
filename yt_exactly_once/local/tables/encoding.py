"""One column of input at a time: from what a client sent to what SQLite stores.

It converts and checks values. If the real proxy refuses a value while it parses the request, this raises at
once. If the proxy refuses it only when the transaction commits, this returns the error for later. Plain
columns take a fast path: it looks at the set of Python types and not at every value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from yt import yson

from yt_exactly_once.local.arguments import flag
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables import simple_values, types, values, written
from yt_exactly_once.local.tables.composites import check_composite
from yt_exactly_once.local.tables.large_values import MAX_STRING_LENGTH, LargeValue
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tables.types import Kind

Outcome = tuple[list[Any], YtError | None]

_NONE = type(None)
_INT64_MAX = (1 << 63) - 1
_ENTITY = b"#"


@dataclass(frozen=True)
class Conversions:
    """Switches of the input format, see `TTypeConversionConfig`.

    Attributes:
        integral: int64 and uint64 replace each other if the value fits.
        integral_to_double: integers are taken by double columns.
        all_to_string: numbers and booleans are taken by string columns.
        string_to_all: strings are parsed by the other columns.
        null_to_entity: `any` columns store a null that was given as a YSON entity; see
            `TInsertRowsFormatConfig`.
    """

    integral: bool = True
    integral_to_double: bool = False
    all_to_string: bool = False
    string_to_all: bool = False
    null_to_entity: bool = False

    @classmethod
    def of_format(cls, attributes: Mapping[str, Any]) -> Conversions:
        """Read the switches from the attributes of an input format."""
        everything = flag(attributes, "enable_type_conversion")
        return cls(
            integral=flag(attributes, "enable_integral_type_conversion", True),
            integral_to_double=everything
            or flag(attributes, "enable_integral_to_double_conversion"),
            all_to_string=everything or flag(attributes, "enable_all_to_string_conversion"),
            string_to_all=everything or flag(attributes, "enable_string_to_all_conversion"),
            null_to_entity=flag(attributes, "enable_null_to_yson_entity_conversion"),
        )


DEFAULT_CONVERSIONS = Conversions()


def encode_column(
    column: Column, given: list[Any], conversions: Conversions = DEFAULT_CONVERSIONS
) -> Outcome:
    """Bring the values of one column to their stored form.

    Args:
        given: values as decoded from the request, None for null.

    Returns:
        The stored values, some perhaps `Written`, and what a commit has to complain about, if anything.

    Raises:
        YtError: the request itself is refused.
    """
    seen = set(map(type, given))
    if column.required and not _NULL_TYPES.isdisjoint(seen):
        return given, YtError(
            f'Required column "{column.name}" cannot have "null" value', Code.SCHEMA_VIOLATION
        )
    if column.wire_type == "any":
        return _encode_any(column, given, null_to_entity=conversions.null_to_entity)
    expected = column.kind
    # A plain integer is an int64, which an uint64 column takes by conversion only.
    strict = expected == "uint64" and int in seen and not conversions.integral
    if strict or not seen <= _PLAIN[expected]:
        given, error = _normalise(column, expected, given, conversions)
        if error is not None:
            return given, error
    if expected == "uint64":
        _refuse_negative(column, given)
    try:
        return _STORE[expected](column, given), None
    except YtError as error:
        if error.code == Code.STRING_LIKE_VALUE_LENGTH:
            return given, _without_frames(error)
        return given, _invalid(column, error)


def _without_frames(error: YtError) -> YtError:
    """Return an error that travels to the commit, without the frames that raised it, which hold values."""
    for inner in error.inner:
        _without_frames(inner)
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _invalid(column: Column, error: YtError) -> YtError:
    inner = [_without_frames(error)]
    return YtError(f'Error validating column "{column.name}"', Code.SCHEMA_VIOLATION, inner=inner)


def _normalise(
    column: Column, expected: Kind, given: list[Any], conversions: Conversions
) -> Outcome:
    """Bring every value to the plain Python type of the column, value by value."""
    plain = _PLAIN_OF[expected]
    seen = set(map(type, given))
    if expected != "string" and {values.KINDS.get(kind, "any") for kind in seen} == {expected}:
        return list(map(plain, given)), None
    result: list[Any] = []
    for value in given:
        kind = values.KINDS.get(type(value), "any")
        if kind == "null":
            result.append(None)
        elif kind == expected:
            result.append(value.encode() if isinstance(value, str) else plain(value))
        else:
            converted = _convert(column, expected, kind, value, conversions)
            if converted is None:
                problem = f'Invalid type: expected "{expected}", actual "{kind}"'
                return given, _invalid(column, YtError(problem, Code.SCHEMA_VIOLATION))
            result.append(converted)
    return result, None


def _convert(
    column: Column, expected: Kind, kind: Kind, value: Any, conversions: Conversions
) -> Any:
    """Convert between types as the switches allow; None means that they do not."""
    integral = kind in ("int64", "uint64")
    problem: str | None = None
    converted: Any = None
    if conversions.integral and integral and expected == "uint64":
        problem = "Unable to convert negative int64 to uint64" if value < 0 else None
        converted = int(value)
    elif conversions.integral and integral and expected == "int64":
        if value > _INT64_MAX:
            problem = "Unable to convert uint64 to int64 as it leads to an overflow"
        converted = int(value)
    elif conversions.integral_to_double and integral and expected == "double":
        converted = float(value)
    elif conversions.all_to_string and expected == "string" and kind != "any":
        shown = str(bool(value)).lower() if kind == "boolean" else str(value)
        converted = shown.encode()
    elif conversions.string_to_all and kind == "string":
        try:
            converted = _PARSERS[expected](bytes(value).decode())
        except (ValueError, KeyError):
            problem = f"Unable to convert string to {expected}"
    if problem is not None:
        raise YtError(
            "Error while performing type conversion",
            Code.SCHEMA_VIOLATION,
            {"column": column.name, "value_type": kind, "column_type": expected},
            [YtError(problem, value=value)],
        )
    return converted


def _present(given: list[Any]) -> list[Any]:
    """Return the values that are not null."""
    return [value for value in given if value is not None] if None in given else given


def _store_integers(column: Column, given: list[Any]) -> list[Any]:
    simple_values.check_integers(column.wire_type, _present(given))
    return given


def _refuse_negative(column: Column, given: list[Any]) -> None:
    """Treat a plain Python integer as int64, which converts only when it is not negative."""
    lowest = min(_present(given), default=0)
    if lowest < 0:
        _convert(column, "uint64", "int64", lowest, DEFAULT_CONVERSIONS)


def _store_unsigned(column: Column, given: list[Any]) -> list[Any]:
    _store_integers(column, given)
    if max(_present(given), default=0) > _INT64_MAX:
        return [None if value is None else values.encode_uint64(value) for value in given]
    return given


def _store_doubles(column: Column, given: list[Any]) -> list[Any]:
    if column.wire_type == "float":
        simple_values.check_floats(_present(given))
    # A NaN makes the sum one, and so may infinities, which are rare enough to look twice.
    if math.isnan(sum(_present(given))):
        return [values.NAN if value != value else value for value in given]  # noqa: PLR0124
    return given


def _store_booleans(_column: Column, given: list[Any]) -> list[Any]:
    return [None if value is None else int(value) for value in given]


def _store_strings(column: Column, given: list[Any]) -> list[Any]:
    present = _present(given)
    if not present:
        return given
    longest = max(map(len, present))
    if longest > MAX_STRING_LENGTH:
        raise YtError(
            f'Value of type "string" is too long: length {longest}, limit {MAX_STRING_LENGTH}',
            Code.STRING_LIKE_VALUE_LENGTH,
        )
    simple_values.check_strings(column.wire_type, present)
    logical = types.value_type(column.type_v3)
    if isinstance(logical, dict):
        simple_values.check_decimals(logical, present)
    return given


def _encode_any(column: Column, given: list[Any], *, null_to_entity: bool) -> Outcome:
    composite = types.is_composite(column.type_v3)
    stored: list[Any] = []
    for value in given:
        if value is None or isinstance(value, yson.YsonEntity):
            is_entity = null_to_entity and value is not None and not composite
            stored.append(_ENTITY if is_entity else None)
            continue
        sent = len(value.raw) if isinstance(value, LargeValue) else 0
        if value.opening == b"<" if sent else getattr(value, "attributes", None):
            raise YtError("Table values cannot have top-level attributes")
        if composite:
            try:
                value = check_composite(column.type_v3, value, column.name)  # noqa: PLW2901
            except YtError as error:
                return given, _invalid(column, error)
        blob = written.dump(value, sent, column) if sent else values.dump_yson(value)
        if len(blob) > MAX_STRING_LENGTH:
            return given, YtError(
                f'Value of type "any" is too long: length {len(blob)}, limit {MAX_STRING_LENGTH}',
                Code.STRING_LIKE_VALUE_LENGTH,
            )
        stored.append(blob)
    return stored, None


_NULL_TYPES = {_NONE, yson.YsonEntity}
_PLAIN_OF: dict[Kind, Callable[[Any], Any]] = {
    "int64": int,
    "uint64": int,
    "double": float,
    "boolean": bool,
    "string": bytes,
    "null": lambda _value: None,
}
_PLAIN: dict[Kind, set[Any]] = {kind: {plain, _NONE} for kind, plain in _PLAIN_OF.items()}
_STORE: dict[Kind, Callable[[Column, list[Any]], list[Any]]] = {
    "int64": _store_integers,
    "uint64": _store_unsigned,
    "double": _store_doubles,
    "boolean": _store_booleans,
    "string": _store_strings,
    "null": lambda _column, given: given,
}
_PARSERS: dict[Kind, Callable[[str], Any]] = {
    "int64": lambda shown: int(shown.removesuffix("u")),
    "uint64": lambda shown: int(shown.removesuffix("u")),
    "double": float,
    "boolean": {"true": True, "false": False}.__getitem__,
}
