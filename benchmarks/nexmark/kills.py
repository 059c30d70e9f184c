"""Queries under kills: their driver dies at random moments, and each table is judged at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.nexmark.events import Events
from benchmarks.nexmark.oracle import Oracle, read
from benchmarks.nexmark.queries import STREAMS, Query
from benchmarks.nexmark.stage import AT_LEAST_ONCE, PARTITIONS, Run, modes_of, tables_of
from yt_exactly_once.demo.schedule import LAST_LIFE_ROWS, moments
from yt_exactly_once.demo.supervision import Supervision
from yt_exactly_once.demo.verify import Outcome
from yt_exactly_once.observability import Event
from yt_exactly_once.testing.child import EVENT, QUERY

if TYPE_CHECKING:
    from yt.wrapper import YtClient

DRIVER = "benchmarks.nexmark.driver"


@dataclass(frozen=True)
class Survival:
    """A query in one mode, after its kills.

    Attributes:
        kills: those that came before its last row of a queue was committed.
        replays: batches that Spark ran again and the sink found committed.
        outcome: its table against what it must have.
    """

    query: str
    mode: str
    kills: int
    replays: int
    outcome: Outcome

    @property
    def kept(self) -> bool:
        """Whether the mode has kept its promise."""
        if self.mode == AT_LEAST_ONCE:
            return self.outcome.lost == self.outcome.wrong == 0
        return self.outcome.exact


class _Counts:
    """What the parent hears of the modes of one query."""

    def __init__(self, modes: Sequence[str]) -> None:
        self.batches = dict.fromkeys(modes, 0)
        self.replays = dict.fromkeys(modes, 0)
        self.kills = dict.fromkeys(modes, 0)

    def hear(self, event: dict[str, Any]) -> None:
        """Take an event."""
        if event[EVENT] in {Event.BATCH_COMMITTED, Event.BATCH_SKIPPED}:
            mode = event[QUERY]
            self.batches[mode] = max(self.batches[mode], event["batch"] + 1)
            self.replays[mode] += event[EVENT] == Event.BATCH_SKIPPED

    def killed(self, batches: int) -> None:
        """Count a kill for each mode that has not committed so many batches."""
        for mode, done in self.batches.items():
            self.kills[mode] += done < batches


def survive(
    queries: Sequence[Query],
    events: Events,
    client: YtClient,
    supervision: Supervision,
    *,
    proxy: str,
    folder: str,
    kills: int,
    seed: int,
    say: Callable[[str], None],
) -> list[Survival]:
    """Run each query in all its modes side by side, kill their driver, and judge their tables."""
    oracle = Oracle(events)
    found: list[Survival] = []
    for number, query in enumerate(queries):
        run = Run.of(events, kills, proxy=proxy, folder=folder, name="killed")
        modes = modes_of(query)
        counts = _Counts(modes)
        for moment in moments(kills, seed + number):
            supervision.live(_line(query, modes, run), moment, counts.hear, is_last=False)
            counts.killed(_batches(query, run, events))
        last = run.larger(LAST_LIFE_ROWS)
        is_last = query is queries[-1]
        supervision.live(_line(query, modes, last), None, counts.hear, is_last=is_last)
        for mode in modes:
            rows = read(client, tables_of(client, query, run, mode), oracle.expected(query).schema)
            outcome = oracle.judge(query, rows)
            one = Survival(query.name, mode, counts.kills[mode], counts.replays[mode], outcome)
            found.append(one)
            say(
                f"{query.name} {mode}: {outcome.expected} rows, {one.kills} kills, {outcome.lost} lost, "
                f"{outcome.duplicated} doubled, {outcome.wrong} wrong"
            )
    return found


def _line(query: Query, modes: Sequence[str], run: Run) -> str:
    return json.dumps({"query": query.name, "modes": modes, "run": asdict(run)})


def _batches(query: Query, run: Run, events: Events) -> int:
    """Return how many batches have rows if none is larger than the run says."""
    tables = events.by_name()
    return max(
        -(-tables[STREAMS[view]].num_rows // (PARTITIONS * run.rows[STREAMS[view]]))
        for view in query.views
    )
