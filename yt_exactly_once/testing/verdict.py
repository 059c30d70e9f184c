"""What became of the rows: each attack against an undisturbed run, and all of them as a report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.testing.attacks import Attack

SHOWN = 3
"""Rows that a report shows of each kind."""

_LONGEST = 100


class Finding(StrEnum):
    """What an attack has done to the rows, the worst first."""

    WRONG = "wrong"
    """There are rows that nobody meant, such as changed ones, or half of a result."""

    LOST = "lost"
    """Rows are missing."""

    DOUBLED = "doubled"
    """All rows are there, and some of them too often."""

    FAILED = "failed"
    """The job ended with an error after the restart, so nobody knows."""

    MISSED = "missed"
    """The job did not take the step that was to be attacked, so nothing was shown."""

    EXACT = "exact"
    """Each row is there as often as it must be."""


class NotExactError(ExactlyOnceError, AssertionError):
    """A job did not survive its attacks."""


@dataclass(frozen=True)
class Attacked:
    """What one attack has done.

    Attributes:
        lost: rows that are missing.
        doubled: copies of rows beyond those that must be there.
        wrong: rows that must not be there.
        error: of the job after the restart; empty if it has ended as it should.
    """

    attack: Attack
    lost: Sequence[Any] = ()
    doubled: Sequence[Any] = ()
    wrong: Sequence[Any] = ()
    error: str = ""
    was_carried_out: bool = True

    @property
    def finding(self) -> Finding:
        """The worst that was found."""
        found = {
            Finding.FAILED: self.error,
            Finding.MISSED: not self.was_carried_out,
            Finding.WRONG: self.wrong,
            Finding.LOST: self.lost,
            Finding.DOUBLED: self.doubled,
        }
        # After an error rows may be missing because the job has not ended.
        return next((finding for finding, is_so in found.items() if is_so), Finding.EXACT)

    def __str__(self) -> str:
        """Return the attack, what was found, and examples."""
        head = f"{self.finding:8} {self.attack}"
        if self.error:
            return f"{head}\n         {_short(self.error)}"
        rows = {"lost": self.lost, "doubled": self.doubled, "wrong": self.wrong}
        more = [
            f"\n         {len(some)} {name}: {', '.join(_short(repr(row)) for row in some[:SHOWN])}"
            + (", ..." if len(some) > SHOWN else "")
            for name, some in rows.items()
            if some
        ]
        return head + "".join(more)


@dataclass(frozen=True)
class Survival:
    """What the attacks have done to a job. As text it is a report.

    Attributes:
        rows: of the undisturbed run, or those that were expected.
    """

    rows: int
    attacked: Sequence[Attacked] = field(default=())

    @property
    def finding(self) -> Finding:
        """The worst that was found; `MISSED` if no attack was carried out."""
        found = {one.finding for one in self.attacked}
        order = [one for one in Finding if one is not Finding.MISSED]
        return next((one for one in order if one in found), Finding.MISSED)

    @property
    def exact(self) -> bool:
        """Whether each attack that was carried out has left each row as often as it must be there."""
        return self.finding is Finding.EXACT

    def of(self, finding: Finding) -> list[Attacked]:
        """Return the attacks with a finding."""
        return [one for one in self.attacked if one.finding is finding]

    def assert_exact(self) -> None:
        """Raise `NotExactError`, with the report, unless the job has survived all attacks."""
        if not self.exact:
            raise NotExactError(
                f"The job is not exact: {self.finding}", details=str(self).splitlines()
            )

    def __str__(self) -> str:
        """Return the report."""
        counts = Counter(one.finding for one in self.attacked)
        found = ", ".join(f"{counts[one]} {one}" for one in Finding if counts[one])
        head = f"{self.finding}: {len(self.attacked)} attacks ({found}), {self.rows} rows"
        return "\n".join([head, *map(str, self.attacked)])


def compared(attack: Attack, found: Iterable[Any], expected: Iterable[Any]) -> Attacked:
    """Compare the rows after an attack with those that must be there; their order does not matter."""
    have, want = _counted(found), _counted(expected)
    rows = {**have.rows, **want.rows}
    lost, extra = want.counts - have.counts, have.counts - want.counts
    return Attacked(
        attack,
        lost=[rows[key] for key in lost.elements()],
        doubled=[rows[key] for key in extra.elements() if key in want.counts],
        wrong=[rows[key] for key in extra.elements() if key not in want.counts],
    )


@dataclass(frozen=True)
class _Counted:
    counts: Counter[Any]
    rows: dict[Any, Any]


def _counted(rows: Iterable[Any]) -> _Counted:
    keyed = [(_key(row), row) for row in rows]
    return _Counted(Counter(key for key, _ in keyed), dict(keyed))


def _key(value: Any) -> Any:
    """Return a value that can be counted, equal for equal rows."""
    match value:
        case Mapping():
            return "mapping", frozenset((name, _key(one)) for name, one in value.items())
        case list() | tuple():
            return tuple(_key(one) for one in value)
        case float() if math.isnan(value):
            return "nan"
    return value


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
