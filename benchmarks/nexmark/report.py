"""The tables: what each query has lost, doubled or got wrong under kills, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.nexmark.kills import Survival
from benchmarks.nexmark.queries import BY_NAME, LEFT_OUT
from benchmarks.nexmark.timing import DELTA, NOOP, Times
from yt_exactly_once import DeliveryMode


def kills_table(survivals: Sequence[Survival]) -> Iterator[str]:
    """Yield a line for each query and mode: what kills left of its table."""
    yield "| query | mode | rows | kills | replays | lost | doubled | wrong |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for one in survivals:
        found = one.outcome
        counts = (
            *(found.expected, one.kills, one.replays),
            *(found.lost, found.duplicated, found.wrong),
        )
        yield _row(_titled(one.query), one.mode, *(f"{count:,}" for count in counts))


def times_table(times: Sequence[Times]) -> Iterator[str]:
    """Yield a line for each query: seconds without a sink, and how many times as long each writer takes."""
    writers = (*(str(mode) for mode in DeliveryMode), DELTA)
    yield _row("query", f"{NOOP}, s", *writers, f"{DeliveryMode.TRANSACTIONAL} / {DELTA}")
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for one in times:
        ratios = [f"{one.ratio(each, NOOP):.2f}" if each in one.seconds else "" for each in writers]
        beside = f"{one.ratio(DeliveryMode.TRANSACTIONAL, DELTA):.2f}"
        yield _row(_titled(one.query), f"{one.median(NOOP):.2f}", *ratios, beside)


def _titled(query: str) -> str:
    return f"{query}: {BY_NAME[query].title}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


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
