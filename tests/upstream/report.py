"""Judges what became of every test, and says what got worse.

Known failures are in `verdicts.tsv`: a regular expression for `file::class::test`, a class and a note. The
first match decides. Classes: `servers` needs real servers, `scope` is no business of this package, `lacks`
is refused or on the list of limits, `WRONG` answers differently, `version` changed in YTsaurus since, `shim`
is a fault of these runs.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLASSES = ("servers", "scope", "lacks", "WRONG", "version", "shim", "unjudged")
UNJUDGED = CLASSES[-1]
_SKIPS = {"needs real servers": "servers", "not in scope": "scope", "lacks": "lacks"}
_RULES = (
    (
        "servers",
        r"/sys/queue_agents/(queues|consumers|queue_agent_object_mapping|replicated_table_mapping)\b",
    ),
    # Off by default on real masters too; the configuration of the tests turns it on.
    ("servers", r"Descending sort order is not available"),
    ("servers", r"Attribute .(media|owning_nodes|stored_replicas|vital). is not found"),
    (
        "lacks",
        r"is not supported by the embedded cluster|are not supported by the embedded cluster",
    ),
)


@dataclass(frozen=True)
class Verdicts:
    """What is known of failing tests."""

    known: tuple[tuple[re.Pattern[str], str, str], ...]

    @classmethod
    def load(cls, path: Path) -> Verdicts:
        """Read them from a file."""
        found = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip() and not line.startswith("#"):
                pattern, kind, note = line.split("\t", 2)
                found.append((re.compile(pattern), kind, note))
        return cls(tuple(found))


@dataclass(frozen=True)
class Judged:
    """One test.

    Attributes:
        outcome: `passed`, `skipped` or `failed`.
        kind: the class, empty where it passed.
    """

    file: str
    test: str
    outcome: str
    kind: str
    note: str


def judge(result: Mapping[str, Any], verdicts: Verdicts) -> Judged:
    """Return what a record means."""
    outcome = result["outcome"]
    if outcome not in ("passed", "skipped"):
        outcome = "failed"
    kind, note = _kind(outcome, result, verdicts)
    return Judged(result["file"], result["test"], outcome, kind, note)


def _kind(outcome: str, result: Mapping[str, Any], verdicts: Verdicts) -> tuple[str, str]:
    why = str(result.get("why", ""))
    if outcome == "passed":
        return "", ""
    if outcome == "skipped":
        text = why.removeprefix("Skipped: ")
        return _SKIPS.get(text.partition(":")[0], "scope"), text
    for pattern, kind, note in verdicts.known:
        if pattern.search(result["test"]):
            return kind, note
    for kind, rule in _RULES:
        if re.search(rule, why):
            return kind, why
    return UNJUDGED, why


def passed_before(path: Path) -> dict[str, int]:
    """Return how many tests of each file passed when somebody looked."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return {name: int(number) for name, number in pairs}


def remember(path: Path, judged: Sequence[Judged]) -> None:
    """Write how many tests of each file pass now; other files keep their numbers."""
    known = passed_before(path) | Counter(each.file for each in judged if each.outcome == "passed")
    head = "# Tests that passed, per file, of the sources that docs/explanation/limits.md names.\n"
    lines = (f"{name}\t{number}\n" for name, number in sorted(known.items()))
    path.write_text(head + "".join(lines), encoding="utf-8")


def regressions(judged: Sequence[Judged], expected: Mapping[str, int]) -> list[str]:
    """Return what got worse: failures that nobody knows of, and files in which fewer tests pass."""
    worse = [f"{each.test}: {each.note[:200]}" for each in judged if each.kind == UNJUDGED]
    passed = Counter(each.file for each in judged if each.outcome == "passed")
    for name, number in expected.items():
        if passed[name] < number:
            worse.append(f"{name}: {passed[name]} tests passed, {number} before")
    return worse


def summary(judged: Sequence[Judged]) -> str:
    """Return one line with the numbers of a run."""
    outcomes = Counter(each.outcome for each in judged)
    kinds = Counter(each.kind for each in judged if each.outcome == "failed")
    failed = ", ".join(f"{kinds[kind]} {kind}" for kind in CLASSES if kinds[kind])
    return (
        f"{outcomes['passed']} passed, {outcomes['failed']} failed ({failed or 'none'}),"
        f" {outcomes['skipped']} skipped"
    )


def table(judged: Sequence[Judged]) -> str:
    """Return the numbers per file, and every kind of failure."""
    head = ["file", "passed", "failed", "skipped", *CLASSES]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    files = list(dict.fromkeys(each.file for each in judged))
    for name in [*files, ""]:
        count: Counter[str] = Counter()
        for each in judged:
            if name in ("", each.file):
                count.update([each.outcome, each.kind] if each.kind else [each.outcome])
        lines.append(
            "| " + " | ".join([name or "all", *(str(count[key] or "") for key in head[1:])]) + " |"
        )
    for kind in CLASSES:
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for each in judged:
            if each.kind == kind and each.outcome == "failed":
                groups[each.note[:200]].append(each.test.rpartition("::")[2])
        lines += ["", f"## Failed: {kind}", ""] if groups else []
        for note, tests in sorted(groups.items(), key=lambda item: -len(item[1])):
            lines.append(f"- {len(tests)} x {note}: {', '.join(dict.fromkeys(tests))[:300]}")
    return "\n".join(lines) + "\n"
