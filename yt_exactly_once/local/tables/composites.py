"""Values of composite types: lists, structs, tuples, variants, dicts and what nests in them.

It checks one value against its logical type, and brings it into its normal form. Structs and variants become
maps or pairs by name; everything else stays as in YSON. It never touches columns of simple types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from yt import yson

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables import large_values, simple_values, types, values, yson_cells
from yt_exactly_once.local.tables.large_values import LargeValue
from yt_exactly_once.local.tables.types import text
from yt_exactly_once.local.tables.written import Written

_PAIR = 2
_MAX_INT64 = (1 << 63) - 1
_NULLS = ("null", "void")
_OPENINGS = {b"[": "begin_list", b"{": "begin_map", b"<": "begin_attributes"}
_ITEM_TYPES = {name: f"{kind}_value" for name, kind in types.KINDS.items()} | {
    **dict.fromkeys(_NULLS, "entity_value"),
    "bool": "boolean_value",
}
_ITEMS: dict[type, str] = {
    **{kind: _ITEM_TYPES[name] for kind, name in values.KINDS.items()},
    **dict.fromkeys((list, tuple, yson.YsonList), "begin_list"),
}


def check_composite(logical: types.LogicalType, value: Any, where: str) -> Any:
    """Check a value and return its normal form.

    Raises:
        YtError: 307, naming the place inside the value.
    """
    if isinstance(logical, str):
        return _check_simple(logical, value, where)
    if logical["type_name"] == "tagged":
        return check_composite(logical["item"], value, where)
    return _CHECKS[logical["type_name"]](logical, value, where)


def _bad(logical: types.LogicalType, found: str, where: str) -> YtError:
    return YtError(
        f'Cannot parse "{where}": expected "{types.describe(logical)}", found {found}',
        Code.SCHEMA_VIOLATION,
    )


def _as_list(
    logical: types.LogicalType, value: Any, where: str, most: int | None = None
) -> list[Any]:
    """Return the items of a list; of a large one no more than one item above the most."""
    if isinstance(value, LargeValue) and value.opening == b"[" and most is not None:
        return value.parts(most)
    if not isinstance(value, list | tuple):
        raise _bad(logical, f'"{type(value).__name__}"', where)
    return list(value)


def _check_optional(logical: dict[str, Any], value: Any, where: str) -> Any:
    item = types.untagged(logical["item"])
    nested = item in _NULLS or (isinstance(item, dict) and item["type_name"] == "optional")
    if value is None or isinstance(value, yson.YsonEntity):
        return None
    if not nested:
        return check_composite(item, value, where)
    # An optional of what may be null is a list of one, so that both nulls stay apart.
    items = _as_list(logical, value, where, most=1)
    if len(items) != 1:
        raise _bad(logical, f"{len(items)} elements", where)
    return [check_composite(item, items[0], where)]


def _check_list(logical: dict[str, Any], value: Any, where: str) -> Any:
    if isinstance(value, LargeValue):
        return _in_pieces(logical, value, where, logical["item"])
    item_type, inner = logical["item"], f"{where}/<list-element>"
    return [check_composite(item_type, item, inner) for item in _as_list(logical, value, where)]


def _check_tuple(logical: dict[str, Any], value: Any, where: str) -> list[Any]:
    parts = [
        (part, f"{where}/<tuple-element-{index}>")
        for index, part in enumerate(types.parts(logical))
    ]
    return _check_each(logical, value, where, parts)


def _check_each(
    logical: dict[str, Any],
    value: Any,
    where: str,
    parts: Sequence[tuple[types.LogicalType, str]],
    what: str = "elements",
) -> list[Any]:
    """Check a list that has a value of each part of the type, given with its place."""
    items = _as_list(logical, value, where, most=len(parts))
    if len(items) != len(parts):
        raise _bad(logical, f"{len(items)} {what}", where)
    return [
        check_composite(part, item, place) for (part, place), item in zip(parts, items, strict=True)
    ]


def _check_dict(logical: dict[str, Any], value: Any, where: str) -> Any:
    if isinstance(value, LargeValue):
        elements = [{"type": part} for part in types.parts(logical)]
        return _in_pieces(logical, value, where, {"type_name": "tuple", "elements": elements})
    parts = [(logical["key"], f"{where}/<key>"), (logical["value"], f"{where}/<value>")]
    return [
        _check_each(logical, pair, where, parts, "elements in a pair")
        for pair in _as_list(logical, value, where)
    ]


def _in_pieces(
    logical: dict[str, Any], value: LargeValue, where: str, item: types.LogicalType
) -> Written:
    """Check the items of a large list, a limited number at a time."""
    if value.opening != b"[":
        raise _bad(logical, f'"{_item_type(value)}"', where)
    written = Written()
    written.add(b"[")
    for piece in value.pieces():
        if isinstance(piece, LargeValue):
            written.add_value(check_composite(item, piece, f"{where}/<list-element>"))
            written.add(b";")
        else:
            # A list of some items is a value of the same type.
            checked = check_composite(logical, values.load_yson(piece), where)
            written.add(values.dump_yson(checked)[1:-1])
    written.add(b"]")
    return written


def _named(value: LargeValue, where: str, known: set[str]) -> dict[str, Any]:
    """Return the fields of a large map."""
    given = {}
    for cell in yson_cells.cells(value.raw):
        name = text(cell.key)
        if name not in known:
            raise YtError(f'Unknown field "{name}" of "{where}"', Code.SCHEMA_VIOLATION)
        given[name] = large_values.parsed(value.raw[cell.begin : cell.end])
    return given


def _check_decimal(logical: dict[str, Any], value: Any, where: str) -> Any:
    checked = _check_simple("string", value, where)
    try:
        simple_values.check_decimals(logical, (_bytes(checked),))
    except YtError as error:
        raise YtError(
            f'Error validating field "{where}"', Code.SCHEMA_VIOLATION, inner=[error]
        ) from error
    return checked


def _check_struct(logical: dict[str, Any], value: Any, where: str) -> dict[str, Any]:
    members = logical["members"]
    if isinstance(value, LargeValue) and value.opening == b"{":
        value = _named(value, where, {member["name"] for member in members})
    if isinstance(value, dict):
        given = {text(key): item for key, item in value.items()}
        unknown = given.keys() - {member["name"] for member in members}
        if unknown:
            raise YtError(f'Unknown field "{min(unknown)}" of "{where}"', Code.SCHEMA_VIOLATION)
    else:
        items = _as_list(logical, value, where, most=len(members))
        if len(items) > len(members):
            raise _bad(logical, f"{len(items)} fields", where)
        given = {member["name"]: item for member, item in zip(members, items, strict=False)}
    return {
        member["name"]: check_composite(
            member["type"], given.get(member["name"]), f"{where}.{member['name']}"
        )
        for member in members
    }


def _check_variant(logical: dict[str, Any], value: Any, where: str) -> list[Any]:
    items = _as_list(logical, value, where, most=_PAIR)
    if len(items) != _PAIR:
        raise _bad(logical, f"{len(items)} elements", where)
    tag, item = items
    if "members" in logical:
        alternatives = {member["name"]: member["type"] for member in logical["members"]}
        names = list(alternatives)
        tag = names[tag] if isinstance(tag, int) and 0 <= tag < len(names) else text(tag)
    else:
        alternatives = dict(enumerate(element["type"] for element in logical["elements"]))
    if tag not in alternatives:
        raise _bad(logical, f'alternative "{tag}"', where)
    return [tag, check_composite(alternatives[tag], item, f"{where}.{tag}")]


def _check_simple(name: str, value: Any, where: str) -> Any:
    found = _item_type(value)
    if name == "yson":
        return _check_yson(value, found, where)
    expected = _ITEM_TYPES[name]
    if found != expected:
        raise YtError(
            f'Cannot parse "{where}": expected "{expected}", found "{found}"', Code.SCHEMA_VIOLATION
        )
    if name == "float":
        simple_values.check_floats((value,))
    elif name in simple_values.RANGES:
        simple_values.check_integers(name, (value,))
    elif found == "string_value":
        simple_values.check_strings(name, (_bytes(value),))
    return value


def _check_yson(value: Any, found: str, where: str) -> Any:
    problem = "unexpected entity value" if found == "entity_value" else ""
    if found == _OPENINGS[b"<"] or getattr(value, "attributes", None):
        problem = "unexpected top level attributes"
    if problem:
        raise YtError(f'Cannot parse "{where}"; {problem}', Code.SCHEMA_VIOLATION)
    return value


def _item_type(value: Any) -> str:
    """Name the YSON item that a value starts with, as the server's parser does."""
    if isinstance(value, LargeValue):
        return _OPENINGS[value.opening]
    found = _ITEMS.get(type(value), "begin_map")
    return "uint64_value" if type(value) is int and value > _MAX_INT64 else found


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


_CHECKS: dict[str, Callable[[dict[str, Any], Any, str], Any]] = {
    "optional": _check_optional,
    "list": _check_list,
    "struct": _check_struct,
    "tuple": _check_tuple,
    "variant": _check_variant,
    "dict": _check_dict,
    "decimal": _check_decimal,
}
