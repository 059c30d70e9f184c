"""Types of columns as the cluster describes them."""

from __future__ import annotations

from typing import Any

Kind = str | dict[str, Any]


def optional(item: Kind) -> Kind:
    return {"type_name": "optional", "item": item}


def listed(item: Kind) -> Kind:
    return {"type_name": "list", "item": item}


def decimal(precision: int, scale: int) -> Kind:
    return {"type_name": "decimal", "precision": precision, "scale": scale}


def dict_of(key: Kind, value: Kind) -> Kind:
    return {"type_name": "dict", "key": key, "value": value}


def tuple_of(*elements: Kind) -> Kind:
    return {"type_name": "tuple", "elements": [{"type": one} for one in elements]}


def struct(**members: Kind) -> Kind:
    return {"type_name": "struct", "members": _named(members)}


def variant(*elements: Kind, **members: Kind) -> Kind:
    if elements:
        return {"type_name": "variant", "elements": [{"type": one} for one in elements]}
    return {"type_name": "variant", "members": _named(members)}


def _named(members: dict[str, Kind]) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind} for name, kind in members.items()]


_ONE, _TEXT, _NULL = b"\x02\x02", b"\x01\x02x", b"#"
_NAMED = b"\x01\x04\xc3\xa9=", b"\x01\x02b="
RAW_VALUES = [
    b"",
    _ONE,
    _NULL,
    *(
        opening + inside + closing
        for inside in (
            b"",
            b";",
            _ONE,
            _ONE + b";",
            _NULL + b";",
            _ONE + b";;",
            _ONE + b";" + _TEXT + b";",
            _ONE + b";" + _TEXT,
            _ONE + b";" + _NULL + b";",
            _ONE + b"=" + _ONE + b";",
            b"\x02" + b"\xff" * 9 + b"\x01;",
            b"\x02" + b"\xff" * 9 + b"\x02;",
            b"\x01\x7ex;",
            b"[" + _ONE + b";" + _TEXT + b";];",
            b"[" + _TEXT + b";" + _ONE + b";];",
            b"[" + _NULL + b";" + _ONE + b"];[" + _TEXT + b";" + _NULL + b"]",
            b"[];",
            b"[" + _NULL + b"];",
            b"{};",
            _NAMED[0] + _ONE + b";" + _NAMED[1] + _TEXT + b";",
            _NAMED[0] + _ONE + b";" + _NAMED[1] + _NULL,
            _NAMED[1] + _TEXT + b";" + _NAMED[0] + _ONE + b";",
            _NAMED[0] + _ONE + b";",
            _NAMED[0] + _ONE + b";" + _NAMED[1] + _TEXT + b";" + _NAMED[1] + _TEXT + b";",
            _NAMED[0] + _ONE + b";" + _NAMED[1] + b"[];",
            _NAMED[0] + _NULL + b";" + _NAMED[1] + _TEXT + b";",
        )
        for opening, closing in (
            (b"[", b"]"),
            (b"{", b"}"),
            (b"[{", b"}]"),
            (b"[", b"}"),
            *((b"[", b"]" + rest) for rest in (b";", b"]", b" ", b"\0")),
        )
    ),
]
"""YSON that may be a composite value: items too many or too few, nulls, separators that are missing."""
