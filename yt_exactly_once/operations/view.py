"""What people see on a terminal: the one console that everything is printed on, and the status as tables.

Paths and names come from the cluster, so whoever may create a node chooses them. The console takes them
as they are: no markup, no emoji, and no control character reaches the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

    from yt_exactly_once.operations.query_status import QueryStatus, QueueStatus

_WIDE = 250
_UNLIMITED = 10_000
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400

_CONTROL = {code: 0x2400 + code for code in range(0x20) if chr(code) != "\n"}
_CONTROL |= dict.fromkeys(range(0x7F, 0xA0), 0xFFFD)
"""Characters that command a terminal, and what is shown instead."""


def visible(text: str) -> str:
    """Return a text that commands no terminal: each control character except the line feed has a sign."""
    return text.translate(_CONTROL)


def console(*, stderr: bool = False) -> Console:
    """Return the console for text and tables. Off a terminal it has no colours, and cuts no line."""
    from rich.console import Console  # noqa: PLC0415 - only commands that print tables need it
    from rich.segment import Segment  # noqa: PLC0415

    class Screen(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            """Show the control characters in what is printed; those of rich are marked as such."""
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    made = Screen(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _WIDE
    return made


def table(*names: str) -> Table:
    """Return an empty table; a name that ends with `>` is that of a column of numbers.

    Where it does not fit, each row becomes lines of a name and a value. So no number and no path is split.
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
            names = [str(column.header) for column in self.columns]
            for row in zip(*(column.cells for column in self.columns), strict=True):
                for name, cell in zip(names, row, strict=True):
                    yield Text(f"{name + ':':14} {cell}", no_wrap=True, overflow="ignore")
                yield Text()

    made = Fitting(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        is_number = name.endswith(">")
        justify: Any = "right" if is_number else "left"
        made.add_column(name.removesuffix(">"), justify=justify, overflow="fold")
    return made


def seconds(duration: float | None) -> str:
    """Return a duration for people, in its largest unit; a question mark if it is not known."""
    if duration is None:
        return "?"
    for unit, letter in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if duration >= 2 * unit:
            return f"{duration / unit:.0f} {letter}"
    return f"{duration:.0f} s"


def rate(rows: float | None) -> str:
    """Return a number of rows per second; a question mark if it is not known."""
    return "?" if rows is None else f"{rows:.0f}"


def rendered(queries: Sequence[QueryStatus], *, partitions: bool) -> Group:
    """Return the tables of queries and queues."""
    from rich.console import Group  # noqa: PLC0415 - only output for people needs it

    return Group(_queries(queries), _queues(queries, partitions=partitions))


def remarks(queries: Sequence[QueryStatus], unread: Mapping[str, str]) -> list[Text]:
    """Return what is wrong, a line each; to be printed unwrapped, as lines have commands to copy.

    Args:
        unread: why ledgers cannot be read, by their paths.
    """
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


def _queries(queries: Sequence[QueryStatus]) -> Table:
    names = ("query", "target", "mode", "batch>", "age>", "rows>", "total>", "rejected>")
    shown = table(*names, "attempts>", "in/s>", "out/s>", "catches up in>")
    for one in queries:
        for target in one.targets:
            shown.add_row(
                one.name,
                target.path,
                one.mode,
                str(one.batch),
                seconds(one.age_seconds),
                str(target.rows),
                str(target.total_rows),
                str(target.total_rejected),
                str(one.attempts),
                rate(one.rows_in),
                rate(one.rows_out),
                seconds(one.catch_up_seconds),
            )
    return shown


def _queues(queries: Sequence[QueryStatus], *, partitions: bool) -> Table:
    shown = table(
        "query",
        "queue",
        "partition>",
        "committed>",
        "consumer>",
        "end>",
        "lag>",
        "lag, time>",
        "trimmed to>",
        "consumer path",
        "registered",
    )
    for one in queries:
        for queue in one.queues:
            rows = _partitions(queue) if partitions else [_together(queue)]
            for row in rows:
                consumer = queue.consumer or "none"
                shown.add_row(one.name, queue.path, *row, consumer, _registered(queue))
    return shown


def _partitions(queue: QueueStatus) -> list[list[str]]:
    return [
        [
            str(part.partition),
            str(part.delivered),
            "-" if part.consumer is None else str(part.consumer),
            str(part.end),
            str(part.lag_rows),
            seconds(part.lag_seconds),
            str(part.first),
        ]
        for part in queue.partitions
    ]


def _together(queue: QueueStatus) -> list[str]:
    if not queue.partitions:
        return ["?"] * 7
    parts = queue.partitions
    consumers = [part.consumer for part in parts if part.consumer is not None]
    return [
        f"all {len(parts)}",
        str(sum(part.delivered for part in parts)),
        str(sum(consumers)) if consumers else "-",
        str(sum(part.end for part in parts)),
        str(queue.lag_rows),
        seconds(queue.lag_seconds),
        str(sum(part.first for part in parts)),
    ]


def _registered(queue: QueueStatus) -> str:
    if queue.registered is None:
        return "-"
    if not queue.registered:
        return "no"
    trims = ", queue trims" if queue.auto_trim else ""
    return ("vital" if queue.vital else "not vital") + trims
