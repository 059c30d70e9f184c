"""Logical types of table columns: the v1 and v3 spellings and how they map onto each other.

Owns names and structure of types, never values. A v3 type is kept in its normal form: a string for a
simple type, a dict with `type_name` otherwise. Spellings: `yt/yt/client/table_client/logical_type.cpp`.
"""

from __future__ import annotations

from typing import Any, Literal

from yt_exactly_once.local.errors import YtError

SIGNED = frozenset(("int8", "int16", "int32", "int64", "interval")) | frozenset(
    ("date32", "datetime64", "timestamp64", "interval64")
)
UNSIGNED = frozenset(("uint8", "uint16", "uint32", "uint64", "date", "datetime", "timestamp"))
FLOATING = frozenset(("float", "double"))
STRING_LIKE = frozenset(("string", "utf8", "json", "uuid"))
Kind = Literal["int64", "uint64", "double", "boolean", "string", "null", "any"]
KINDS: dict[str, Kind] = {
    **dict.fromkeys(SIGNED, "int64"),
    **dict.fromkeys(UNSIGNED, "uint64"),
    **dict.fromkeys(FLOATING, "double"),
    **dict.fromkeys(STRING_LIKE, "string"),
    "boolean": "boolean",
    "any": "any",
    "null": "null",
    "void": "null",
}
"""By v1 type, what values are: everything else about it only says which of them are allowed."""

_V3_TO_V1_NAMES = {"bool": "boolean", "yson": "any"}
_V1_TO_V3_NAMES = {"boolean": "bool", "any": "yson"}
_PARTS = {**dict.fromkeys(("optional", "list", "tagged"), ("item",)), "dict": ("key", "value")}
_MAX_DECIMAL_PRECISION = 76
MAX_DEPTH = 32

LogicalType = Any
"""A v3 type in normal form: `str` or `dict[str, Any]`."""


def text(value: Any) -> str:
    """Return a YSON string as `str`, whichever way it was decoded."""
    return value.decode() if isinstance(value, bytes) else str(value)


def v1_name(name: str) -> str:
    """Return what v1 calls a simple type."""
    return _V3_TO_V1_NAMES.get(name, name)


def parse_type_v3(raw: Any) -> LogicalType:
    """Check a v3 type and bring it to its normal form."""
    if isinstance(raw, str | bytes):
        name = text(raw)
        if v1_name(name) not in KINDS or name in _V1_TO_V3_NAMES:
            raise YtError(
                f'"{name}" is not a valid type name, or is not supported by the embedded cluster'
            )
        return name
    if not isinstance(raw, dict):
        raise YtError("Type must be a string or a map")
    fields = _texts(raw)
    if "type_name" not in fields:
        raise YtError('Missing required key "type_name" in a complex type')
    name = text(fields["type_name"])
    if name in _PARTS:
        inner = {part: parse_type_v3(_required(fields, part, name)) for part in _PARTS[name]}
        if name == "tagged":
            inner["tag"] = text(_required(fields, "tag", name))
        return {"type_name": name, **inner}
    if name == "decimal":
        return _parse_decimal(fields)
    if name in ("struct", "tuple", "variant"):
        return _parse_members(name, fields)
    return parse_type_v3(name)


def type_v3_from_v1(name: str, *, required: bool) -> LogicalType:
    """Return the v3 form of a v1 type."""
    if name not in KINDS:
        raise YtError(f'Invalid value "{name}" of "type": no such column type, or none here')
    simple = _V1_TO_V3_NAMES.get(name, name)
    if name in ("null", "void"):
        if required:
            raise YtError("Null type cannot be required")
        return simple
    return simple if required else {"type_name": "optional", "item": simple}


def to_v1(logical: LogicalType) -> tuple[str, bool]:
    """Return the v1 face of a v3 type: its name and whether it is required."""
    inner = value_type(logical)
    required = bool(inner == untagged(logical))
    if isinstance(inner, dict):
        return ("string" if inner["type_name"] == "decimal" else "any"), required
    name = v1_name(str(inner))
    if name in ("null", "void"):
        return (name if required else "any"), False
    return name, required


def untagged(logical: LogicalType) -> LogicalType:
    """Strip `tagged` wrappers from the outside of a type."""
    while isinstance(logical, dict) and logical["type_name"] == "tagged":
        logical = logical["item"]
    return logical


def value_type(logical: LogicalType) -> LogicalType:
    """Strip tags and one `optional`: the type of a non-null value."""
    logical = untagged(logical)
    if isinstance(logical, dict) and logical["type_name"] == "optional":
        return untagged(logical["item"])
    return logical


def is_composite(logical: LogicalType) -> bool:
    """Tell whether values are stored as YSON although the type is not `yson` itself."""
    inner = value_type(logical)
    if isinstance(inner, str):
        # An optional null is a list of one, so that it has two values.
        return inner in ("null", "void") and inner != untagged(logical)
    return bool(inner["type_name"] != "decimal")


def parts(logical: LogicalType) -> list[LogicalType]:
    """Return the types that a type is made of; none for a simple type and for a decimal."""
    if isinstance(logical, str):
        return []
    named = logical.get("members") or logical.get("elements") or ()
    return [
        *(part["type"] for part in named),
        *(logical[part] for part in ("item", "key", "value") if part in logical),
    ]


def is_comparable(logical: LogicalType) -> bool:
    """Tell whether values have an order, so that a key may hold them."""
    logical = untagged(logical)
    if isinstance(logical, str):
        return logical not in ("json", "yson")
    named = logical["type_name"] == "dict" or "members" in logical
    return not named and all(map(is_comparable, parts(logical)))


def check_depth(logical: LogicalType, depth: int = 1) -> int:
    """Refuse a type that is nested too deep; return how many simple types it is made of."""
    if depth > MAX_DEPTH:
        raise YtError(f"Type is too deep: depth limit of {MAX_DEPTH} exceeded", limit=MAX_DEPTH)
    inner = parts(untagged(logical))
    return sum(check_depth(part, depth + 1) for part in inner) or 1


def describe(logical: LogicalType) -> str:
    """Spell a type the way error messages of the server do."""
    logical = untagged(logical)
    if isinstance(logical, str):
        return v1_name(logical)
    name = logical["type_name"]
    if name == "decimal":
        return f"decimal({logical['precision']},{logical['scale']})"
    shown = [describe(part) for part in parts(logical)]
    if "members" in logical:
        pairs = zip(logical["members"], shown, strict=True)
        shown = [f"{member['name']}={each}" for member, each in pairs]
    return f"{name}<{';'.join(shown)}>"


def _texts(raw: dict[Any, Any]) -> dict[str, Any]:
    return {text(key): value for key, value in raw.items()}


def _required(fields: dict[str, Any], key: str, name: str) -> Any:
    if key not in fields:
        raise YtError(f'Missing required key "{key}" in type "{name}"')
    return fields[key]


def _parse_decimal(fields: dict[str, Any]) -> LogicalType:
    precision = int(_required(fields, "precision", "decimal"))
    scale = int(_required(fields, "scale", "decimal"))
    if not 1 <= precision <= _MAX_DECIMAL_PRECISION or not 0 <= scale <= precision:
        raise YtError(f"Invalid decimal: precision {precision}, scale {scale}")
    return {"type_name": "decimal", "precision": precision, "scale": scale}


def _parse_members(name: str, fields: dict[str, Any]) -> LogicalType:
    if name == "struct" or (name == "variant" and "members" in fields):
        members: list[dict[str, Any]] = []
        for member in map(_texts, _required(fields, "members", name)):
            given = text(_required(member, "name", name))
            if not given:
                raise YtError(f"Name of {name} field #{len(members)} is empty")
            if any(known["name"] == given for known in members):
                raise YtError(f'{name.capitalize()} field name "{given}" is used twice')
            members.append({"name": given, "type": parse_type_v3(_required(member, "type", name))})
        return {"type_name": name, "members": members}
    elements = map(_texts, _required(fields, "elements", name))
    listed = [{"type": parse_type_v3(_required(element, "type", name))} for element in elements]
    return {"type_name": name, "elements": listed}
