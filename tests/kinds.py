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
