"""The page of breaks has a line for each; the test that makes the break compares it.

With `YT_EXACTLY_ONCE_BREAKS=write` the tests write their lines, and a new one at the end of its table.
"""

from __future__ import annotations

import itertools
import os
import re
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.local.operated import Operated

WRITES = os.environ.get("YT_EXACTLY_ONCE_BREAKS") == "write"
PAGE = Path(__file__).parent.parent / "docs/measured/breaks.md"
_SECONDS = re.compile(r"(?<= )\d+\.\d s")
_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}\b|(?<=robot-)[0-9a-f]{8}")

WHATS = ("target", "ledger", "target and ledger", "consumer", "producer", "checkpoint")
HOWS = ("old copy", "in place", "emptied", "removed")
KINDS = {
    "transactional": ("transactional", False),
    "transactional with state": ("transactional", True),
    "idempotent": ("idempotent", False),
    "at-least-once": ("at-least-once", False),
    "at-least-once with state": ("at-least-once", True),
}
"""Mode, and whether the query keeps state: not in `idempotent` mode, which refuses a shuffle."""

_EVERY = "every one"

CAUSES = {
    "consumer removed|clock": "no such consumer|nothing at the consumer|consumer .+ does not exist",
    "consumer unregistered": "not registered",
    "consumer moved|consumer of": "removed, or another|somebody has moved it",
    "consumer no longer": "is not a queue consumer",
    ".* unmounted": 'is unmounted|"unmounted" state',
    ".* frozen": "is frozen",
    "queue trimmed": "were trimmed",
    "queue replaced": "not registered|recreated",
    "queue resharded down": "queue now has 1|partitions are gone",
    "(queue|target) gone": "no such table|nothing at the|there is no table",
    "ledger gone": "has no entry of",
    "batch too large": "one transaction takes",
    "ledger of yesterday": "[Tt]he ledger ends at",
    "checkpoint of another|another consumer": "The checkpoint belongs to the",
    "checkpoint of|checkpoint copied": "Another checkpoint has|is older than|and the ledger at",
    "old driver": "and the ledger at|another run has",
    "ledger without": "atomicity=none",
    "ledger cannot": "Access denied",
    "offsets of": "has format version 99",
    "queue is a static": "is a table, not a queue|The table is static",
    "checkpoint lost": "There is no checkpoint at",
    "token": "refused the token",
    "(target|ledger|consumer) read-only": '"write" permission|lacks the permission',
    "quota": "Free space in the account",
    "bundle": "administrators of the cluster about the bundle",
    "row too big": "Filter such rows out",
    "proxy of another": "belongs to another cluster",
    "proxy|balancer": "does not answer|no usable answer|answers HTTP 503",
    "executors": "Install ",
    "Python worker killed": "exited unexpectedly",
    "Python worker out": "MemoryError",
    "disk": "File too large",
    "checkpoint read-only": "Permission denied",
    "checkpoint: offsets gone": "assertion failed|/offsets ends at",
    "checkpoint: offsets torn": "Failed to read|is torn",
    "checkpoint: metadata": "MISSING_METADATA|no file metadata",
    "checkpoint: one": "doesn't exist|lacks batch",
    "second driver": "CONCURRENT_STREAM_LOG_UPDATE",
}
"""By the names of breaks: words with which a tool names the cause."""


def require_line(table: str, broken: str, query: Operated, outcome: str) -> None:
    """Compare what a break has led to with its line."""
    is_refused = outcome.startswith("refused")
    done = "; ".join(dict.fromkeys(query.done)) or (
        "a person decides" if is_refused else "start again"
    )
    for place, name in ((query.folder, "//home/shop"), (str(query.checkpoint), "CHECKPOINT")):
        done = done.replace(place, name)
    said = ", ".join(f"`{name}`" for name in dict.fromkeys(query.said)) or "-"
    cause = next((words for name, words in CAUSES.items() if re.match(name, broken)), "(?!)")
    named = [
        f"{tool} {query.heard[tool][1]:.1f} s"
        for tool in ("error", "page", "doctor", "status")
        if tool in query.heard and re.search(cause, query.heard[tool][0])
    ]
    line = f"| {broken} | {said} | {', '.join(named) or '-'} | {_ID.sub('ID', done)} | {outcome} |"
    if WRITES:
        _write(table, broken, line)
    assert _timeless(line) in map(_timeless, PAGE.read_text().splitlines()), line


def require_restored(case: tuple[str, str, str], query: Operated, outcome: str) -> None:
    """Compare what somebody has put back, emptied or removed with its cell, which has no times.

    Args:
        case: what, how, and the kind of the query.
    """
    done = "; ".join(dict.fromkeys(query.done)) or "start again"
    for place, shown in ((query.folder, "//home/shop"), (str(query.checkpoint), "CHECKPOINT")):
        done = done.replace(place, shown)
    said = ", ".join(f"`{error}`" for error in dict.fromkeys(query.said)) or "-"
    named = [tool for tool in ("doctor", "status") if query.heard[tool][0]]
    cell = f"{said} | {', '.join(named) or '-'} | {_ID.sub('ID', done)} | {outcome}"
    with PAGE.open() as page:
        flock(page, LOCK_EX)
        if WRITES:
            _write_restored(restored() | {case: cell})
        assert restored().get(case) == cell


def restored() -> dict[tuple[str, str, str], str]:
    """Return what the page says of each case of a restore."""
    return {
        (what, how, kind): rest
        for line in _of_restores(PAGE.read_text().splitlines())[2:]
        for what, hows, kinds, rest in [line[2:-2].split(" | ", 3)]
        for how in hows.split(", ")
        for kind in (KINDS if kinds == _EVERY else kinds.split(", "))
    }


def _of_restores(lines: list[str]) -> list[str]:
    begin = lines.index("## Put back, emptied or removed")
    rows = itertools.dropwhile(lambda line: not line.startswith("|"), lines[begin:])
    return list(itertools.takewhile(lambda line: line.startswith("|"), rows))


def _write_restored(cells: dict[tuple[str, str, str], str]) -> None:
    """Write a line for cases of one thing that end alike."""
    ends: dict[tuple[str, str], dict[str, list[str]]] = {}
    for what, how, kind in itertools.product(WHATS, HOWS, KINDS):
        if (what, how, kind) in cells:
            ends.setdefault((what, how), {}).setdefault(cells[what, how, kind], []).append(kind)
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for (what, how), kinds_of in ends.items():
        for rest, some in kinds_of.items():
            kinds = _EVERY if some == list(KINDS) else ", ".join(some)
            grouped.setdefault((what, kinds, rest), []).append(how)
    text, old = PAGE.read_text(), _of_restores(PAGE.read_text().splitlines())
    new = [
        f"| {what} | {', '.join(hows)} | {kinds} | {rest} |"
        for (what, kinds, rest), hows in grouped.items()
    ]
    PAGE.write_text(text.replace("\n".join(old), "\n".join([*old[:2], *new])))


def _timeless(line: str) -> str:
    return _SECONDS.sub("s", line)


def _write(table: str, broken: str, line: str) -> None:
    lines = PAGE.read_text().splitlines()
    found = [number for number, old in enumerate(lines) if old.startswith(f"| {broken} |")]
    if found:
        lines[found[0]] = line
    else:
        begin = lines.index(f"## {table}")
        rows = [number for number, old in enumerate(lines) if old.startswith("|")]
        rows = [number for number in rows if number > begin]
        last = next(number for number in rows if number + 1 not in rows)
        lines.insert(last + 1, line)
    PAGE.write_text("\n".join(lines) + "\n")
