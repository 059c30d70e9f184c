"""Faults on request: rules that make a command fail, vanish, wait or kill the proxy.

Rules live in the store, so they hold for every proxy of a cluster and their counts are global. Every
hit is recorded as a rule of its own that hits that one request; together they are a plan that can be
replayed. This module decides which rule hits; the wire layer carries the action out.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.formats.structured import dump_yson, load_yson

if TYPE_CHECKING:
    from yt_exactly_once.local.store import Store

_LOGGER = logging.getLogger(__name__)

ACTIONS = {
    "lose_answer": "execute, then reset the connection without an answer",
    "lose_request": "reset the connection without executing",
    "delay": "wait `seconds`, then continue",
    "unavailable": "answer 503 with Retry-After, not executed",
    "error": "answer the given code and message, not executed; a commit loses its transaction",
    "late_error": "execute, then answer the given code and message",
    "expire_transaction": "end the transaction that the request names, then continue",
    "kill_proxy": "end the proxy process at once, `when` before or after executing",
    "hold": "reset the connection at once and execute after `seconds`",
}

_RULES = "SELECT id, rule, seen, hits FROM faults ORDER BY id"
_PASSING = frozenset({"delay", "expire_transaction"})
"""Actions after which a request continues. Any other action is the last that a request meets."""


@dataclass(frozen=True)
class Fault:
    """One rule.

    Attributes:
        action: one of `ACTIONS`.
        command: wire name of the command it applies to; `*` is every command.
        count: how often it hits; `None` is for ever.
        after: how many matching requests pass before the first hit.
        probability: chance that a matching request is hit.
        seed: makes the chance repeatable.
        match: parameters that a request must have, exactly.
        writes_to: path of a table that the transaction of the request must have written rows for; `*`
            is any table, empty asks for nothing.
        proxy: address of the one proxy it holds for; empty is all.
        seconds: for `delay` and `hold`.
        code: for `error`, `late_error` and `unavailable`.
        message: likewise.
        when: for `kill_proxy`, `before` or `after`.
    """

    action: str
    command: str = "*"
    count: int | None = 1
    after: int = 0
    probability: float = 1.0
    seed: int = 0
    match: Mapping[str, Any] = field(default_factory=dict)
    writes_to: str = ""
    proxy: str = ""
    seconds: float = 0.0
    code: int = Code.UNAVAILABLE
    message: str = "Fault on request"
    when: str = "after"

    def __post_init__(self) -> None:
        """Refuse what no request could ever meet."""
        if self.action not in ACTIONS:
            raise YtError(
                f'Unknown fault action "{self.action}"; known: {", ".join(sorted(ACTIONS))}'
            )
        if self.when not in {"before", "after"}:
            raise YtError('Fault attribute "when" must be "before" or "after"')
        if not 0 <= self.probability <= 1:
            raise YtError('Fault attribute "probability" must be between 0 and 1')
        if self.after < 0 or self.seconds < 0 or (self.count is not None and self.count < 1):
            raise YtError('Fault attributes "after", "seconds" and "count" must not be negative')

    def error(self) -> YtError:
        """Return the error that `error`, `late_error` and `unavailable` answer with."""
        is_away = self.action == "unavailable"
        status = HTTPStatus.SERVICE_UNAVAILABLE if is_away else HTTPStatus.BAD_REQUEST
        return YtError(self.message, self.code, {"fault": True}, http_status=status)


class Faults:
    """The rules of a cluster, as one proxy sees them.

    Args:
        written: returns the paths of the tables that a transaction has written rows for.
    """

    def __init__(
        self, store: Store, address: str, written: Callable[[str], frozenset[str]]
    ) -> None:
        self._store = store
        self._address = address
        self._written = written
        with store.write() as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS faults (id INTEGER PRIMARY KEY AUTOINCREMENT,"
                " rule BLOB NOT NULL, seen INTEGER NOT NULL, hits INTEGER NOT NULL)"
            )
            connection.execute(
                "CREATE TABLE IF NOT EXISTS fault_hits (id INTEGER PRIMARY KEY, rule BLOB NOT NULL)"
            )

    def add(self, rules: list[Any]) -> list[int]:
        """Append rules, each given as a map of the attributes of `Fault`; return their ids."""
        checked = [parse(rule) for rule in rules]
        ids = []
        with self._store.write() as connection:
            for rule in checked:
                cursor = connection.execute(
                    "INSERT INTO faults (rule, seen, hits) VALUES (?, 0, 0)",
                    (dump_yson(asdict(rule)),),
                )
                ids.append(int(cursor.lastrowid or 0))
        return ids

    def clear(self) -> None:
        """Forget every rule and what it has done."""
        with self._store.write() as connection:
            connection.execute("DELETE FROM faults")
            connection.execute("DELETE FROM fault_hits")

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules with their counts: `seen` matching requests, `hits` among them."""
        with self._store.read() as connection:
            return [
                {"id": number, **asdict(rule), "seen": seen, "hits": hits}
                for number, rule, seen, hits in _loaded(connection.execute(_RULES))
            ]

    def plan(self) -> list[dict[str, Any]]:
        """Return every hit, in order, as a rule that hits the same request and no other.

        Requests are counted from the moment when the rule was added. So a program that sends its requests in
        the same order meets the same faults again.
        """
        with self._store.read() as connection:
            rows = connection.execute("SELECT rule FROM fault_hits ORDER BY id").fetchall()
        return [_brief(_load(rule)) for (rule,) in rows]

    def take(self, command: str, parameters: Mapping[str, Any]) -> list[Fault]:
        """Count a request and return the rules that hit it, in the order they were added.

        A rule that ends the request is the last one; those behind it have seen it and not hit it.
        """
        known = _loaded(self._store.rows(_RULES))
        if not any(self._matches(rule, command, parameters) for _, rule, _, _ in known):
            return []
        taken: list[Fault] = []
        with self._store.write() as connection:
            for number, rule, seen, hits in _loaded(connection.execute(_RULES)):
                if not self._matches(rule, command, parameters):
                    continue
                ended = bool(taken) and taken[-1].action not in _PASSING
                hit = not ended and _hits(rule, seen, hits)
                connection.execute(
                    "UPDATE faults SET seen = seen + 1, hits = hits + ? WHERE id = ?", (hit, number)
                )
                if hit:
                    _LOGGER.warning(
                        "Fault %d: %s of %s, request %d", number, rule.action, command, seen
                    )
                    exact = replace(rule, count=1, after=seen, probability=1.0, seed=0)
                    connection.execute(
                        "INSERT INTO fault_hits (rule) VALUES (?)", (dump_yson(asdict(exact)),)
                    )
                    taken.append(rule)
        return taken

    def _matches(self, rule: Fault, command: str, parameters: Mapping[str, Any]) -> bool:
        return (
            rule.command in {"*", command}
            and rule.proxy in {"", self._address}
            and (rule.action != "expire_transaction" or "transaction_id" in parameters)
            and all(parameters.get(name) == value for name, value in rule.match.items())
            and (not rule.writes_to or self._has_written(rule.writes_to, parameters))
        )

    def _has_written(self, path: str, parameters: Mapping[str, Any]) -> bool:
        written = self._written(str(parameters.get("transaction_id")))
        return bool(written) if path == "*" else path in written


def parse(rule: Any) -> Fault:
    """Read a rule given as a map; refuse an unknown attribute or a value out of range."""
    if not isinstance(rule, dict):
        raise YtError("A fault rule must be a map")
    known = {item.name for item in fields(Fault)}
    unknown = sorted(str(name) for name in rule if name not in known)
    if unknown or "action" not in rule:
        raise YtError(
            f'A fault rule needs "action" and may have {", ".join(sorted(known))};'
            f" unknown: {', '.join(unknown) or 'none'}"
        )
    try:
        return Fault(**rule)
    except TypeError as error:
        raise YtError(f"Malformed fault rule: {error}") from error


def from_text(text: str) -> dict[str, Any]:
    """Read `ACTION[,NAME=VALUE]...`, such as `lose_answer,command=commit_transaction,count=3`.

    Names are the attributes of `Fault`; `match.NAME=VALUE` asks for a parameter of the request. Values
    are JSON where they can be, else text. Whether the rule makes sense is for `parse` to say.

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


def _loaded(rows: Iterable[tuple[int, bytes, int, int]]) -> list[tuple[int, Fault, int, int]]:
    return [(n, _load(rule), seen, hits) for n, rule, seen, hits in rows]


@lru_cache(maxsize=4096)
def _load(rule: bytes) -> Fault:
    return Fault(**load_yson(rule, "fault"))


def _brief(rule: Fault) -> dict[str, Any]:
    """Return the attributes that are not what they are by default."""
    usual = asdict(Fault(rule.action))
    given = {name: value for name, value in asdict(rule).items() if value != usual[name]}
    return {"action": rule.action, "command": rule.command, "after": rule.after, **given}


def _hits(rule: Fault, seen: int, hits: int) -> bool:
    if seen < rule.after or (rule.count is not None and hits >= rule.count):
        return False
    chance = random.Random(f"{rule.seed}/{seen}").random()  # noqa: S311 - repeatable, not secret
    return chance < rule.probability


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
