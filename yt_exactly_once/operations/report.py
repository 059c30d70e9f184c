"""What was seen of queries over a while, and one HTML page about it: verdict, time line, lag, offsets.

The page needs no network and no script.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from html import escape as escaped
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from yt_exactly_once.errors import visible
from yt_exactly_once.operations.view import others_of, partitions_of, targets_of

if TYPE_CHECKING:
    from yt_exactly_once.operations.query_status import QueryStatus


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


@dataclass
class History:
    """Everything that was seen, in order.

    Attributes:
        lags: how many rows each query was behind, and when, in seconds since 1970.
        queries: their last status.
    """

    marks: list[Mark] = field(default_factory=list)
    lags: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    queries: Sequence[QueryStatus] = ()

    def look(self, queries: Sequence[QueryStatus], at: float) -> None:
        """Add one look at the status of queries, and the batches that were committed since the last one."""
        before = {(one.row.ledger, one.entry.query_id): one.entry.batch_id for one in self.queries}
        for one in queries:
            batch = one.entry.batch_id
            if batch > before.get((one.row.ledger, one.entry.query_id), batch):
                rows = sum(target.rows for target in one.targets)
                self.marks.append(Mark(at, Happening.COMMITTED, one.name, batch, rows))
        self.follow(queries, at)

    def follow(self, queries: Sequence[QueryStatus], at: float) -> None:
        """Add the lag of queries alone, where their batches are known from elsewhere."""
        for one in queries:
            if one.queues:
                self.lags.setdefault(one.name, []).append((at, one.lag_rows))
        self.queries = queries


_WIDTH, _LEFT, _RIGHT = 900, 120, 32
_TRACK, _LAG_HEIGHT = 46, 160
_TICKS = 6
_MINUTE = 60
_SHAPES = {
    Happening.COMMITTED: "m-2 -10h4v20h-4z",
    Happening.REPLAYED: "m0 -11l-8 18h16z",
    Happening.STARTED: "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    Happening.KILLED: "V0",
}
"""How each is drawn, from its position on; a kill is a line through all queries."""

_NAMES = ("batch>", "partition>", "attempts>")

_STYLE = """
:root { color-scheme: light dark; --committed: #2f86e0; --replayed: #c07a10; --started: #2a9450;
  --killed: #d8453c; --line: #8896a555; }
body { margin: 0 auto; padding: 1.5rem; max-width: 60rem; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.verdict { display: inline-block; margin: .75rem 0; padding: .35rem .9rem; border-radius: 1rem;
  font-weight: 600; color: #fff; background: #1b7f3b; } .verdict.bad { background: #c62828; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .75rem; margin: 0; }
dl div { background: var(--line); padding: .6rem .8rem; border-radius: .5rem; }
dd { margin: 0; font-size: 1.25rem; font-weight: 600; }
figure { margin: 0; } .wide { overflow-x: auto; } .wide svg { min-width: 40rem; width: 100%; height: auto; }
svg text { fill: currentColor; font: 12px system-ui, sans-serif; }
.axis { stroke: var(--line); } polyline { fill: none; stroke-width: 2; }
.committed { fill: var(--committed); } .replayed { fill: var(--replayed); }
.started { fill: var(--started); } .killed { stroke: var(--killed); stroke-width: 2; }
.entry { display: inline-block; margin-right: 1rem; }
.key { display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem; border-radius: 2px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; } th { font-weight: 500; } td.n, th.n { text-align: right; }
.problem { color: var(--killed); font-weight: 600; }
"""


def escape(text: str) -> str:
    """Return a text as HTML has it."""
    return escaped(visible(text))


def page(
    title: str,
    history: History,
    *,
    facts: Sequence[tuple[str, str]] = (),
    verdict: str = "",
    is_good: bool = True,
) -> str:
    """Return one HTML document about queries.

    Args:
        facts: names and values to show first.
        verdict: what a check found, if there was one.
    """
    kind = "verdict" if is_good else "verdict bad"
    entries = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts
    )
    blocks = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{datetime.now(UTC):%Y-%m-%d %H:%M:%S UTC}</p>",
        f'<p class="{kind}">{escape(verdict)}</p>' if verdict else "",
        f"<dl>{entries}</dl>" if entries else "",
        _charts(history),
        tables(history.queries),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>\n{chr(10).join(block for block in blocks if block)}\n</body></html>\n"
    )


def _charts(history: History) -> str:
    moments = [mark.at for mark in history.marks]
    moments += [at for lags in history.lags.values() for at, _ in lags]
    if len(set(moments)) < len(("begin", "end")):
        return ""
    scale = _Scale(min(moments), max(moments))
    return _time_line(history.marks, scale) + _lag(history.lags, scale)


@dataclass(frozen=True)
class _Scale:
    """Moments as positions on the x axis."""

    begin: float
    end: float

    def x(self, moment: float) -> float:
        share = (moment - self.begin) / (self.end - self.begin)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

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


def _time_line(marks: Sequence[Mark], scale: _Scale) -> str:
    tracks = list(dict.fromkeys(mark.query for mark in marks if mark.query))
    if not tracks:
        return ""
    height = _TRACK * len(tracks)
    heights = {name: number * _TRACK + _TRACK // 2 for number, name in enumerate(tracks)}
    drawn = []
    for name, y in heights.items():
        drawn.append(
            f'<line class="axis" x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}"/>'
            f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
        )
    # Replays are few and small: on top of the commits around them.
    for mark in sorted(marks, key=lambda mark: mark.what is Happening.REPLAYED):
        start = f"M{scale.x(mark.at)} {heights.get(mark.query, height - 5)}"
        drawn.append(
            f'<path class="{mark.what.name.lower()}" d="{start}{_SHAPES[mark.what]}">'
            f"<title>{escape(_said(mark))}</title></path>"
        )
    colours = {what.value: f"var(--{what.name.lower()})" for what in Happening}
    label = "Time line of commits, replays, starts and kills"
    return "<h2>Time line</h2>" + _figure(scale, drawn, height, label, colours)


def _said(mark: Mark) -> str:
    batch = "" if mark.batch is None else f"batch {mark.batch}"
    rows = "" if mark.rows is None else f"{mark.rows:,} rows"
    return ", ".join(filter(None, (mark.query, mark.what.value, batch, rows, mark.note)))


def _lag(lags: Mapping[str, Sequence[tuple[float, int]]], scale: _Scale) -> str:
    if not lags:
        return ""
    most = max(10, *(rows for some in lags.values() for _, rows in some))

    def height(rows: float) -> float:
        return round(_LAG_HEIGHT - rows / most * (_LAG_HEIGHT - 10), 1)

    drawn = []
    for rows in round_ticks(most):
        y = height(rows)
        drawn.append(f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end">{rows:,.0f}</text>')
    # The golden angle keeps the colours of any number of queries apart.
    colours = {name: f"hsl({at * 137.5 % 360} 65% 50%)" for at, name in enumerate(lags)}
    for name, some in lags.items():
        corners = [(scale.x(at), height(rows)) for at, rows in some]
        points = [f"{x},{y}" for x, y in corners[:1]]
        # Lag falls at once when a batch is committed.
        points += [f"{x},{last} {x},{y}" for (_, last), (x, y) in pairwise(corners)]
        drawn.append(f'<polyline stroke="{colours[name]}" points="{" ".join(points)}"/>')
    label = "Rows of the queue that are not committed, over time"
    chart = _figure(scale, drawn, _LAG_HEIGHT, label, colours)
    return "<h2>Lag: rows that are not committed</h2>" + chart


def _figure(
    scale: _Scale, drawn: Sequence[str], height: int, label: str, colours: Mapping[str, str]
) -> str:
    legend = "".join(
        f'<span class="entry"><span class="key" style="background: {colour}"></span>{escape(name)}</span>'
        for name, colour in colours.items()
    )
    return (
        f'<figure><div class="wide"><svg viewBox="0 0 {_WIDTH} {height + 24}" role="img" '
        f'aria-label="{label}">{scale.axis(height)}{"".join(drawn)}</svg></div>'
        f"<figcaption>{legend}</figcaption></figure>"
    )


def tables(queries: Sequence[QueryStatus]) -> str:
    """Return the tables of queries and of their sources as a piece of HTML; nothing without queries."""
    if not queries:
        return ""
    problems = "".join(
        f'<p class="problem">{escape(one.name)}: {escape(problem)}</p>'
        for one in queries
        for problem in one.problems
    )
    rows = [row for one in queries for queue in one.queues for row in partitions_of(one, queue)]
    others = [row for one in queries for row in others_of(one, partitions=True)]
    offsets = "".join(f"<h2>Offsets</h2>{_table(some)}" for some in (rows, others) if some)
    return f"<h2>Queries</h2>{_table(targets_of(queries))}{problems}{offsets}"


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a table; `>` after a name means numbers.

    Numbers by which commands know something are as these take them, without separators.
    """

    def line(tag: str, cells: Iterable[tuple[str, Any]]) -> str:
        made = []
        for name, value in cells:
            kind = ' class="n"' if name.endswith(">") else ""
            text = f"{value:,}" if isinstance(value, int) and name not in _NAMES else str(value)
            made.append(f"<{tag}{kind}>{escape(text)}</{tag}>")
        return f"<tr>{''.join(made)}</tr>"

    first, *others = rows
    head = line("th", ((name, name.removesuffix(">")) for name in first))
    body = "".join(line("td", row.items()) for row in (first, *others))
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'
