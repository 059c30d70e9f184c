"""Fault rules as one word of a command line."""

from __future__ import annotations

import json
from typing import Any


def parse(text: str) -> dict[str, Any]:
    """Read `ACTION[,NAME=VALUE]...`, such as `lose_answer,command=commit_transaction,count=3`.

    Names are the attributes of `yt_exactly_once.local.faults.Fault`; `match.NAME=VALUE` asks for a
    parameter of the request. Values are JSON where they can be, else text. Whether the rule makes sense
    is checked by the cluster.

    Raises:
        ValueError: the text does not have that form.
    """
    action, *pairs = text.split(",")
    rule: dict[str, Any] = {"action": action}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not name or not found:
            raise ValueError(f"{pair!r} in the fault {text!r} is not NAME=VALUE")
        if name.startswith("match."):
            rule.setdefault("match", {})[name.removeprefix("match.")] = _value(value)
        else:
            rule[name] = _value(value)
    return rule


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
