"""What people see on a terminal: the one console that everything is printed on, and the status as tables.

Paths and names come from the cluster, so whoever may create a node chooses them. The console takes them
as they are: no markup, no emoji, and nothing that commands the terminal or begins another line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yt_exactly_once.errors import visible

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.segment import Segment
    from rich.table import Table
    from rich.text import Text

    from yt_exactly_once.commit.other_sources import TopicRange
    from yt_exactly_once.operations.query_status import QueryStatus, QueueStatus

_WIDE = 250
_UNLIMITED = 10_000
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def console(*, stderr: bool = False) -> Console:
    """Return the console for text and tables. Off a terminal it has no colours, and cuts no line."""
    from rich.console import Console  # noqa: PLC0415 - only commands that print tables need it
    from rich.text import Text  # noqa: PLC0415

    class Screen(Console):
        def render_str(self, text: str, **given: Any) -> Text:
            """Make a text of a string: a line, or a cell of a table."""
            return super().render_str(visible(text), **given)

        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            """Render anything; a text is one line."""
            if isinstance(renderable, Text):
                renderable = renderable.copy()
                renderable.plain = visible(renderable.plain)
            return super().render(renderable, options)

    made = Screen(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _WIDE
    return made


def seconds(duration: float | None) -> str:
    """Return a duration for people, in its largest unit; a question mark if it is not known."""
    if duration is None:
        return "?"
    for unit, letter in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if duration >= 2 * unit:
            return f"{duration / unit:.0f} {letter}"
    return f"{duration:.0f} s"


def shown(rows: Iterable[Mapping[str, Any]], absent: str) -> Table | str:
    """Return rows of one form as a table; without rows what is then said.

    A name that ends with `>` is that of a column of numbers. Where the table does not fit, each row becomes
    lines of a name and a value. So no number and no path is split.
    """
    from rich import box  # noqa: PLC0415 - only output for people needs it
    from rich.measure import Measurement  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class Fitting(Table):
        def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
            """Measure it, and choose the form."""
            needed = Measurement.get(console, options.update(width=_UNLIMITED), self).minimum
            if needed <= options.max_width:
                yield from super().__rich_console__(console, options)
                return
            for row in listed:
                for name, value in row.items():
                    line = f"{name.removesuffix('>') + ':':14} {value}"
                    yield Text(line, no_wrap=True, overflow="ignore")
                yield Text()

    listed = list(rows)
    if not listed:
        return absent
    made = Fitting(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in listed[0]:
        justify: Any = "right" if name.endswith(">") else "left"
        made.add_column(name.removesuffix(">"), justify=justify, overflow="fold")
    for row in listed:
        made.add_row(*map(str, row.values()))
    return made


def rendered(queries: Sequence[QueryStatus], *, partitions: bool) -> Group:
    """Return the tables of queries and queues."""
    from rich.console import Group  # noqa: PLC0415 - only output for people needs it

    queues = (
        row
        for one in queries
        for queue in one.queues
        for row in (partitions_of(one, queue) if partitions else [_together(one, queue)])
    )
    others = [row for one in queries for row in others_of(one, partitions=partitions)]
    tables = [shown(targets_of(queries), "no queries")]
    if others:
        tables.append(shown(others, ""))
    if not others or any(one.queues for one in queries):
        tables.append(shown(queues, "no queues"))
    return Group(*tables)


def targets_of(queries: Iterable[QueryStatus]) -> Iterator[dict[str, Any]]:
    """Yield what people are told of each target of queries, by the names of columns."""
    for one in queries:
        for target in one.targets:
            yield {
                "query": one.name,
                "target": target.path,
                "mode": one.entry.mode,
                "batch>": one.entry.batch_id,
                "age>": seconds(one.age_seconds),
                "rows>": target.rows,
                "total>": target.total_rows,
                "rejected>": target.total_rejected_rows,
                "attempts>": one.entry.attempts,
                "in/s>": _rate(one.rows_in),
                "out/s>": _rate(one.rows_out),
                "catches up in>": seconds(one.catch_up_seconds),
            }


def partitions_of(one: QueryStatus, queue: QueueStatus) -> Iterator[dict[str, Any]]:
    """Yield where a query is in each partition of a queue, by the names of columns."""
    for status in queue.partitions:
        at = "-" if status.consumer is None else status.consumer
        lag = status.lag_rows, seconds(status.lag_seconds)
        yield _row(
            one, queue, status.partition, status.delivered, at, status.end, *lag, status.first
        )


def others_of(one: QueryStatus, *, partitions: bool) -> Iterator[dict[str, Any]]:
    """Yield where the last batch was in each source that is no queue, by the names of columns."""
    names = ("source", "partition>", "committed>", "end then>", "lag then>")
    groups: dict[str, list[TopicRange]] = {}
    for topic in one.topics:
        groups.setdefault(topic.topic, []).append(topic)
    for name, ranges in groups.items():
        for some in [[each] for each in ranges] if partitions else [ranges]:
            number = some[0].partition if partitions else f"all {len(some)}"
            end, lag = (
                _sum(getattr(each, name) for each in some) for name in ("latest", "lag_rows")
            )
            cells: tuple[Any, ...] = (name, number, sum(each.end for each in some), end, lag)
            yield {"query": one.name, **dict(zip(names, cells, strict=True))}
    if one.others and not one.topics:
        for offset in one.others.end:
            cells = "other", "-", json.dumps(offset), "?", "?"
            yield {"query": one.name, **dict(zip(names, cells, strict=True))}


def _sum(numbers: Iterable[int | None]) -> int | str:
    known = list(numbers)
    return "?" if None in known else sum(number or 0 for number in known)


def _together(one: QueryStatus, queue: QueueStatus) -> dict[str, Any]:
    statuses = queue.partitions
    if not statuses:
        return _row(one, queue, *["?"] * 7)
    delivered, end, first = (
        sum(getattr(status, name) for status in statuses) for name in ("delivered", "end", "first")
    )
    consumers = [status.consumer for status in statuses if status.consumer is not None]
    at = sum(consumers) if consumers else "-"
    lag = queue.lag_rows, seconds(queue.lag_seconds)
    return _row(one, queue, f"all {len(statuses)}", delivered, at, end, *lag, first)


def _row(one: QueryStatus, queue: QueueStatus, *cells: Any) -> dict[str, Any]:
    names = ("partition>", "committed>", "consumer>", "end>", "lag>", "lag, time>", "trimmed to>")
    return {
        "query": one.name,
        "queue": queue.path,
        **dict(zip(names, cells, strict=True)),
        "consumer path": queue.consumer or "none",
        "registered": _registered(queue),
    }


def _rate(rows: float | None) -> str:
    return "?" if rows is None else f"{rows:.0f}"


def remarks(queries: Sequence[QueryStatus], unread: Mapping[str, str]) -> list[Text]:
    """Return what is wrong, also with ledgers that cannot be read; lines have commands to copy: unwrapped."""
    from rich.text import Text  # noqa: PLC0415 - only output for people needs it

    found = [f"{one.name}: {problem}" for one in queries for problem in one.problems]
    found += [f"{path}: {why}" for path, why in unread.items()]
    if not queries and not unread:
        found = [
            "no query has committed a batch here. If one does not run, ask yt-exactly-once doctor"
        ]
    hints = [f"{one.name}: {hint}" for one in queries for hint in one.hints]
    return [
        *(Text(line, style="bold red" if queries or unread else "") for line in found),
        *(Text(line, style="yellow") for line in hints),
    ]


def _registered(queue: QueueStatus) -> str:
    if queue.registered is None:
        return "-"
    if not queue.registered:
        return "no"
    trims = ", queue trims" if queue.auto_trim else ""
    return ("vital" if queue.vital else "not vital") + trims
