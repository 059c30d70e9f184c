"""One table: what each query has lost, doubled or got wrong under kills, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.nexmark.kills import Survival
from benchmarks.nexmark.queries import BY_NAME, LEFT_OUT
from benchmarks.nexmark.timing import DELTA, NOOP, Times

HEAD = (
    "| query | mode | rows | kills | replays | lost | doubled | wrong | s | times noop | times delta |",
    "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
)


def table(survivals: Sequence[Survival], times: Sequence[Times]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield from HEAD
    by_query = {one.query: one for one in times}
    for one in survivals:
        found = one.outcome
        counts = (
            *(found.expected, one.kills, one.replays),
            *(found.lost, found.duplicated, found.wrong),
        )
        cells = [f"{one.query}: {BY_NAME[one.query].title}", one.mode, *(f"{n:,}" for n in counts)]
        if measured := by_query.get(one.query):
            cells += [f"{measured.median(one.mode):.2f}"]
            cells += [f"{measured.ratio(one.mode, other):.2f}" for other in (NOOP, DELTA)]
        else:
            cells += [""] * 3
        yield f"| {' | '.join(cells)} |"


def left_out() -> Iterator[str]:
    """Yield a line for each query that Spark cannot express."""
    for name, reason in LEFT_OUT.items():
        yield f"- `{name}`: {reason}."


def to_json(survivals: Sequence[Survival], times: Sequence[Times]) -> dict[str, Any]:
    """Return all that was found."""
    return {
        "survivals": [asdict(one) for one in survivals],
        "seconds": {one.query: one.seconds for one in times},
        "left_out": LEFT_OUT,
    }
