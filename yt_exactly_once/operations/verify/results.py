"""What a run of `verify-cluster` found, as data, as JSON and as Markdown for a ticket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from yt_exactly_once.operations.verify.fact import Fact, Part

_CANNOT_SHOW = (
    "A lost answer, a killed proxy and a lease that ends during a commit cannot be provoked on a cluster "
    "that is not one's own. The embedded cluster shows them."
)


class Verdict(StrEnum):
    """What a check says about a fact."""

    HOLDS = "holds"
    DIFFERS = "differs"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True)
class Result:
    """One fact over one backend.

    Attributes:
        seen: what the cluster did; for a fact that holds, what is worth telling besides.
    """

    fact: Fact
    backend: str
    verdict: Verdict
    seen: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        return {
            "name": self.fact.name,
            "area": self.fact.area,
            "checked": self.fact.checked,
            "parts": list(self.fact.parts),
            "meaning_if_different": self.fact.meaning,
            "source": self.fact.source,
            "backend": self.backend,
            "verdict": self.verdict.value,
            "seen": self.seen,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Report:
    """One run.

    Attributes:
        cluster: name of the cluster; empty if it does not say.
        started: when, UTC, ISO 8601.
        versions: of what took part, by name.
        skipped: backends that were not checked, each with the reason.
        leftover: what could not be removed, and how to; empty when all is removed.
    """

    proxy: str
    cluster: str
    started: str
    seconds: float
    versions: Mapping[str, str]
    results: Sequence[Result]
    skipped: Mapping[str, str]
    leftover: str = ""

    def of(self, verdict: Verdict) -> list[Result]:
        """Return the results with a verdict."""
        return [result for result in self.results if result.verdict is verdict]

    @property
    def holds(self) -> bool:
        """Whether nothing differs and everything that matters was shown."""
        return {result.verdict for result in self.results} == {Verdict.HOLDS}

    @property
    def affected(self) -> dict[Part, list[str]]:
        """Parts of the package that something different matters to, with the names of the facts."""
        affected: dict[Part, list[str]] = {}
        for part in Part:
            names = {r.fact.name for r in self.of(Verdict.DIFFERS) if part in r.fact.parts}
            if names:
                affected[part] = sorted(names)
        return affected

    def to_json(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        return {
            "proxy": self.proxy,
            "cluster": self.cluster,
            "started": self.started,
            "seconds": round(self.seconds, 1),
            "versions": dict(self.versions),
            "holds": self.holds,
            "affected": {part.value: names for part, names in self.affected.items()},
            "skipped_backends": dict(self.skipped),
            "leftover": self.leftover,
            "results": [result.to_json() for result in self.results],
            "cannot_be_shown": _CANNOT_SHOW,
        }

    def summary(self) -> list[str]:
        """Return the outcome in a few lines."""
        counts = Counter(result.verdict for result in self.results)
        lines = [
            ", ".join(
                f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]
            )
            + f", in {self.seconds:.0f} s"
        ]
        lines += [f"Affected: {part.value} by {', '.join(n)}" for part, n in self.affected.items()]
        lines += [f"Not checked over {name}: {reason}" for name, reason in self.skipped.items()]
        if self.leftover:
            lines.append(self.leftover)
        return lines

    def to_markdown(self) -> str:
        """Return it as text to attach to a ticket: the outcome, what differs, then every fact."""
        lines = [
            f"# verify-cluster: {self.cluster or self.proxy}",
            "",
            f"- Proxy: {self.proxy}",
            f"- Started: {self.started}",
            *(f"- {name}: {version}" for name, version in self.versions.items()),
            *(f"- {line}" for line in self.summary()),
            "",
        ]
        for verdict, title in ((Verdict.DIFFERS, "What differs"), (Verdict.NOT_SHOWN, "Not shown")):
            if found := self.of(verdict):
                lines += [f"## {title}", ""]
                lines += [line for result in found for line in _explained(result)]
        lines += ["## Every fact", "", "| fact | backend | verdict | seen |", "|---|---|---|---|"]
        lines += [
            f"| {_cell(result.fact.checked)} (`{result.fact.name}`) | {result.backend} "
            f"| {result.verdict.value} | {_cell(result.seen)} |"
            for result in self.results
        ]
        return "\n".join([*lines, "", _CANNOT_SHOW, ""])


def _explained(result: Result) -> list[str]:
    return [
        f"### `{result.fact.name}` over {result.backend}",
        "",
        f"- Checked: {result.fact.checked}",
        f"- Seen: {result.seen}",
        f"- Depends on it: {', '.join(result.fact.parts)}",
        f"- What it means: {result.fact.meaning}",
        f"- Where YTsaurus decides it: {result.fact.source}",
        "",
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
