"""What was seen of queries over a while, and one HTML page about it: verdict, time line, lag, offsets.

The page needs no network and no script.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from yt_exactly_once.operations.view import places_of, targets_of

if TYPE_CHECKING:
    from yt_exactly_once.operations.query_status import PartitionStatus, QueryStatus


class Happening(StrEnum):
    """What can happen on a time line."""

    COMMITTED = "committed"
    REPLAYED = "replayed and skipped"
    STARTED = "started"
    KILLED = "killed"


@dataclass(frozen=True)
class Mark:
    """Something that happened.

    Attributes:
        at: when, in seconds since 1970.
        query: to which query; empty for all.
        rows: rows of the batch, if they are known.
        note: more, for people.
    """

    at: float
    what: Happening
    query: str = ""
    batch: int | None = None
    rows: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Lag:
    """How many rows a query was behind at one moment, in seconds since 1970."""

    at: float
    query: str
    rows: int


@dataclass
class History:
    """Everything that was seen, in order.

    Attributes:
        lags: how far queries were behind.
        queries: their last status.
        names: of queries, by target; a query without one goes by its id.
    """

    marks: list[Mark] = field(default_factory=list)
    lags: list[Lag] = field(default_factory=list)
    queries: Sequence[QueryStatus] = ()
    names: dict[str, str] = field(default_factory=dict)

    def name(self, query: QueryStatus) -> str:
        """Return what a query is called here."""
        return self.names.get(query.targets[0].path, query.name)

    def look(self, queries: Sequence[QueryStatus], *, at: float | None = None) -> None:
        """Add one look at the status of queries, and the batches that were committed since the last one."""
        moment = time.time() if at is None else at
        before = {(one.row.ledger, one.entry.query_id): one.entry.batch_id for one in self.queries}
        for one in queries:
            batch = one.entry.batch_id
            if batch > before.get((one.row.ledger, one.entry.query_id), batch):
                rows = sum(target.rows for target in one.targets)
                self.marks.append(Mark(moment, Happening.COMMITTED, self.name(one), batch, rows))
        self.follow(queries, at=moment)

    def follow(self, queries: Sequence[QueryStatus], *, at: float | None = None) -> None:
        """Add the lag of queries alone, where their batches are known from elsewhere."""
        moment = time.time() if at is None else at
        for one in queries:
            if one.queues:
                self.lags.append(Lag(moment, self.name(one), one.lag_rows))
        self.queries = queries


_WIDTH, _LEFT, _RIGHT = 900, 120, 32
_LANE, _LAG_HEIGHT = 46, 160
_TICKS = 6
_MINUTE = 60
_COLOURS = 3
_DASHES = ("none", "8 4", "2 3", "12 4 2 4")
"""Of lines; with the colours they distinguish twelve queries."""

_MOST_MARKS = 500
"""How many happenings the table at the end lists."""

_NAMES = ("batch>", "partition>", "attempts>")

_STYLE = """
:root { color-scheme: light dark; --text: #1c2733; --soft: #5b6b7b; --line: #d5dde5; --page: #fff;
  --card: #f5f8fa; --a: #0b6bcb; --b: #8a4fbf; --c: #00796b; --amber: #b26a00;
  --red: #c62828; --good: #1b7f3b; }
@media (prefers-color-scheme: dark) { :root { --text: #e6ecf2; --soft: #9fb0c0; --line: #34424f;
  --page: #12181e; --card: #1b232b; --a: #6db3f8; --b: #c69bf0; --c: #5fd0c2; --amber: #f0b35a;
  --red: #ff7b72; --good: #5fd38a; } }
body { margin: 0 auto; padding: 1.5rem; max-width: 60rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p.soft, figcaption, dt { color: var(--soft); }
.verdict { display: inline-block; margin: .75rem 0; padding: .35rem .9rem; border-radius: 1rem;
  font-weight: 600; color: #fff; background: #1b7f3b; } .verdict.bad { background: #c62828; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .75rem; margin: 0; }
dl div { background: var(--card); padding: .6rem .8rem; border-radius: .5rem; }
dd { margin: 0; font-size: 1.25rem; font-weight: 600; font-variant-numeric: tabular-nums; }
figure { margin: 0; } .wide { overflow-x: auto; } .wide svg { min-width: 40rem; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
svg .name { fill: var(--text); font-weight: 600; }
svg .axis { stroke: var(--line); } .committed { fill: var(--a); } .replayed { fill: var(--amber); }
.started { fill: var(--good); }
line.killed { stroke: var(--red); stroke-width: 2; } text.killed { fill: var(--red); }
.l0 { stroke: var(--a); } .l1 { stroke: var(--b); } .l2 { stroke: var(--c); }
polyline { fill: none; stroke-width: 2; }
.entry { display: inline-block; margin-right: 1rem; }
.key { display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem; border-radius: 2px; }
svg.line { width: 36px; height: 8px; margin-right: .3rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; } th { color: var(--soft); font-weight: 500; } td.n, th.n { text-align: right; }
.bar { display: block; width: 8rem; height: .6rem; background: var(--line);
  border-radius: .3rem; overflow: hidden; }
.bar i { display: block; height: 100%; background: var(--a); }
.problem { color: var(--red); font-weight: 600; }
"""


@dataclass(frozen=True)
class Verdict:
    """What a check found."""

    text: str
    good: bool


@dataclass(frozen=True)
class Page:
    """The contents of a page.

    Attributes:
        verdict: what a check found, if there was one.
        facts: names and values to show first.
        made_at: when the page was made, in seconds since 1970.
    """

    title: str
    history: History
    made_at: float
    verdict: Verdict | None = None
    facts: Sequence[tuple[str, str]] = field(default=())

    def render(self) -> str:
        """Return the page as one HTML document."""
        parts = [
            f"<h1>{escape(self.title)}</h1>",
            f'<p class="soft">{datetime.fromtimestamp(self.made_at, UTC):%Y-%m-%d %H:%M:%S UTC}</p>',
            self._verdict(),
            _facts(self.facts),
            self._charts(),
            _queries(self.history.queries),
            _offsets(self.history.queries),
            _happenings(self.history.marks),
        ]
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{_STYLE}</style></head>"
            f"<body>\n{chr(10).join(part for part in parts if part)}\n</body></html>\n"
        )

    def _verdict(self) -> str:
        if self.verdict is None:
            return ""
        kind = "verdict" if self.verdict.good else "verdict bad"
        return f'<p class="{kind}">{escape(self.verdict.text)}</p>'

    def _charts(self) -> str:
        history = self.history
        moments = [one.at for one in history.marks] + [one.at for one in history.lags]
        if len(set(moments)) < len(("begin", "end")):
            return ""
        scale = _Scale(min(moments), max(moments))
        return _time_line(history.marks, scale) + _lag(history.lags, scale)


@dataclass(frozen=True)
class _Scale:
    """Moments as places on the x axis."""

    begin: float
    end: float

    def x(self, moment: float) -> float:
        part = (moment - self.begin) / (self.end - self.begin)
        return round(_LEFT + part * (_WIDTH - _LEFT - _RIGHT), 1)

    def axis(self, y: float) -> str:
        """Return ticks with the time since the begin, in round numbers."""
        span = self.end - self.begin
        unit, name = (_MINUTE, "min") if span >= _TICKS * _MINUTE else (1, "s")
        lines = []
        for passed in round_ticks(span / unit):
            x = self.x(self.begin + passed * unit)
            lines.append(
                f'<line class="axis" x1="{x}" y1="0" x2="{x}" y2="{y}"/>'
                f'<text x="{x}" y="{y + 16}" text-anchor="middle">{passed:,g} {name}</text>'
            )
        return "".join(lines)


def round_ticks(span: float) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten from 0 on, up to eight within a span."""
    power = 10.0 ** math.floor(math.log10(span / _TICKS))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= span / (_TICKS + 1))
    return [round(number * step, 9) for number in range(int(span / step + 1e-9) + 1)]


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts
    )
    return f"<dl>{shown}</dl>" if shown else ""


def _time_line(marks: Sequence[Mark], scale: _Scale) -> str:
    lanes = list(dict.fromkeys(mark.query for mark in marks if mark.query))
    if not lanes:
        return ""
    height = _LANE * len(lanes)
    drawn = [scale.axis(height)]
    for number, name in enumerate(lanes):
        y = number * _LANE + _LANE // 2
        drawn.append(
            f'<line class="axis" x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}"/>'
            f'<text class="name" x="{_LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
        )
    # Replays are few and small: on top of the commits around them.
    ordered = sorted(marks, key=lambda mark: mark.what is Happening.REPLAYED)
    drawn += [_drawn(mark, scale.x(mark.at), lanes, height) for mark in ordered]
    legend = "".join(
        f'<span class="entry"><span class="key" style="background: var(--{colour})"></span>{what}</span>'
        for colour, what in (
            ("a", "batch committed"),
            ("amber", "batch replayed, found in the ledger, skipped"),
            ("good", "driver started"),
            ("red", "driver killed"),
        )
    )
    label = "Time line of commits, replays, starts and kills"
    return "<h2>Time line</h2>" + _figure("".join(drawn), height + 24, label, legend)


def _drawn(mark: Mark, x: float, lanes: Sequence[str], height: int) -> str:
    title = f"<title>{escape(_said(mark))}</title>"
    kind = mark.what.name.lower()
    if not mark.query:
        if mark.what is Happening.KILLED:
            return f'<line class="killed" x1="{x}" y1="0" x2="{x}" y2="{height}">{title}</line>'
        return f'<circle class="{kind}" cx="{x}" cy="{height - 5}" r="5">{title}</circle>'
    y = lanes.index(mark.query) * _LANE + _LANE // 2
    if mark.what is Happening.REPLAYED:
        points = f"{x},{y - 11} {x - 8},{y + 7} {x + 8},{y + 7}"
        return f'<polygon class="{kind}" points="{points}">{title}</polygon>'
    return f'<rect class="{kind}" x="{x - 2}" y="{y - 10}" width="4" height="20">{title}</rect>'


def _said(mark: Mark) -> str:
    parts = [mark.query, mark.what.value]
    if mark.batch is not None:
        parts.append(f"batch {mark.batch}")
    if mark.rows is not None:
        parts.append(f"{mark.rows:,} rows")
    return ", ".join(part for part in [*parts, mark.note] if part)


def _lag(lags: Sequence[Lag], scale: _Scale) -> str:
    if not lags:
        return ""
    most = max([one.rows for one in lags] + [10])

    def height(rows: float) -> float:
        return round(_LAG_HEIGHT - rows / most * (_LAG_HEIGHT - 10), 1)

    drawn, keys = [scale.axis(_LAG_HEIGHT)], []
    for rows in round_ticks(most):
        y = height(rows)
        drawn.append(f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end">{rows:,.0f}</text>')
    for number, name in enumerate(dict.fromkeys(one.query for one in lags)):
        places = [(scale.x(one.at), height(one.rows)) for one in lags if one.query == name]
        points = [f"{x},{y}" for x, y in places[:1]]
        # Lag falls at once when a batch is committed.
        points += [f"{x},{last} {x},{y}" for (_, last), (x, y) in pairwise(places)]
        dashes = _DASHES[number // _COLOURS % len(_DASHES)]
        look = f'class="l{number % _COLOURS}" stroke-dasharray="{dashes}"'
        drawn.append(f'<polyline {look} points="{" ".join(points)}"/>')
        keys.append(
            '<span class="entry"><svg class="line" viewBox="0 0 36 8">'
            f'<polyline {look} points="0,4 36,4"/></svg>{escape(name)}</span>'
        )
    label = "Rows of the queue that are not committed, over time"
    chart = _figure("".join(drawn), _LAG_HEIGHT + 24, label, "".join(keys))
    return "<h2>Lag: rows that are not committed</h2>" + chart


def _figure(drawn: str, height: int, label: str, legend: str) -> str:
    return (
        f'<figure><div class="wide"><svg viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{label}">{drawn}</svg></div><figcaption>{legend}</figcaption></figure>'
    )


def _queries(queries: Sequence[QueryStatus]) -> str:
    if not queries:
        return ""
    problems = "".join(
        f'<p class="problem">{escape(one.name)}: {escape(problem)}</p>'
        for one in queries
        for problem in one.problems
    )
    return f"<h2>Queries</h2>{_table(targets_of(queries))}{problems}"


def _offsets(queries: Sequence[QueryStatus]) -> str:
    rows = [
        {**row, "done!": _bar(part)}
        for one in queries
        for queue in one.queues
        for row, part in zip(places_of(one, queue), queue.partitions, strict=True)
    ]
    return f"<h2>Offsets</h2>{_table(rows)}" if rows else ""


def _bar(part: PartitionStatus) -> str:
    done = 100 if part.end == 0 else min(100 * part.delivered / part.end, 100)
    return f'<span class="bar" title="{done:.0f} %"><i style="width: {done:.1f}%"></i></span>'


def _happenings(marks: Sequence[Mark]) -> str:
    if not marks:
        return ""
    begin = marks[0].at
    rows = [
        {
            "time>": f"{mark.at - begin:.1f} s",
            "query": mark.query,
            "what": mark.what.value,
            "batch>": "" if mark.batch is None else mark.batch,
            "rows>": "" if mark.rows is None else mark.rows,
            "note": mark.note,
        }
        for mark in marks[:_MOST_MARKS]
    ]
    left = len(marks) - len(rows)
    more = f'<p class="soft">and {left} more</p>' if left else ""
    summary = f"<summary>{len(marks)} events</summary>"
    return f"<h2>What happened</h2><details open>{summary}{_table(rows)}{more}</details>"


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a table; `>` after a name means numbers, `!` cells that are HTML already.

    Numbers by which commands know something are as these take them, without separators.
    """

    def cell(tag: str, name: str, value: Any) -> str:
        kind = ' class="n"' if name.endswith(">") else ""
        text = f"{value:,}" if isinstance(value, int) and name not in _NAMES else str(value)
        is_html = tag == "td" and name.endswith("!")
        return f"<{tag}{kind}>{text if is_html else escape(text)}</{tag}>"

    first, *others = rows
    head = "".join(cell("th", name, name.rstrip(">!")) for name in first)
    body = "".join(
        f"<tr>{''.join(cell('td', name, value) for name, value in row.items())}</tr>"
        for row in (first, *others)
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
