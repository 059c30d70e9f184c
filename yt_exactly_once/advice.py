"""The commands that errors and tools tell a person to run, each in one place: tests run them as printed.

Paths and names come from others, also from the rows of a target that names its tables by them. So each is
quoted for the shell: a name may not become a part of a command.
"""

from __future__ import annotations

import json
import re
from shlex import quote
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

_NONE: Mapping[str, str] = {}
_PLAIN = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
"""Names that YSON takes without quotes."""


OTHER_CLUSTER = (
    "Set the proxy back to that of the query's cluster. Two clusters may have the same name, and tables at "
    "the same paths. Or start a new query with a new checkpoint location. A sink whose tables were moved "
    "here starts once with new_ledger=True"
)
"""For a proxy that belongs to another cluster than the one of the query."""


SENT_BY_AUTO = "Use sent_by='auto', which sends such batches from the driver"
"""For rows that tasks cannot send, where the user wants it."""

GATEWAY_LOCATION = "Pass a location that the gateway prints: it begins with webhdfs://"
"""For a checkpoint that no gateway serves."""

ONE_SINK_MOVES = (
    "If one function calls several sinks, set advance_consumer=False for all but the last"
)
"""For a consumer that two sinks of a function would move."""

OR_ADD = (
    "Or let the sink do it, in transactional mode and for a path without braces: "
    "Target(..., on_new_columns='add')"
)
"""For columns that a table lacks."""

FORKED = (
    "A copied checkpoint has the id of its query. Stop one of the two drivers. To write both targets, give "
    "one of them a checkpoint and a consumer of its own: the steps are in how-to/recover.md, section 'A "
    f"checkpoint was copied'. {ONE_SINK_MOVES}"
)
"""For a consumer that another run of the same query has moved."""


TOMBSTONES_MARK = "yt_exactly_once_tombstones"
"""Attribute of a target: which table has its tombstones, and by which sequence they are compared."""


def mount(path: str, state: str = "unmounted") -> str:
    """Return how a table is mounted, or unfrozen: what is frozen cannot be mounted."""
    path = quote(path)
    if state in {"frozen", "freezing"}:
        return f"yt unfreeze-table {path} --sync"
    return f"yt mount-table {path} --sync"


def audit(target: str) -> str:
    """Return how a target is compared, in the first way that it and its ledger allow."""
    return f"yt-exactly-once audit {quote(target)}"


def reshard(path: str, tablets: int) -> str:
    """Return how a table gets another number of tablets."""
    then, path = mount(path), quote(path)
    return (
        f"yt unmount-table {path} --sync && yt reshard-table {path} --tablet-count {tablets} --sync && "
        f"{then}"
    )


def reshard_at(path: str, starts: Iterable[str]) -> str:
    """Return how a sorted table gets tablets that begin at some keys, which are given as YSON."""
    starts, then, path = " ".join(map(quote, starts)), mount(path), quote(path)
    return f"yt unmount-table {path} --sync && yt reshard-table {path} {starts} --sync && {then}"


def add_columns(path: str, columns: Mapping[str, str]) -> str:
    """Return how a dynamic table gets columns, by name, with their types as Spark or YTsaurus calls them."""
    pairs = " ".join(f"{quote(name)} {quote(kind)}" for name, kind in columns.items())
    path = quote(path)
    return f"yt-exactly-once add-column {path} {pairs}"


def make_dynamic(path: str) -> str:
    """Return how a static table becomes a target."""
    then, path = mount(path), quote(path)
    return f"yt alter-table {path} --dynamic && {then}"


def keep_longer(path: str, duration: timedelta) -> str:
    """Return how a table keeps its rows for a time."""
    path, milliseconds = quote(path), int(duration.total_seconds() * 1000)
    return f"yt set {path}/@max_data_ttl {milliseconds} && yt remount-table {path}"


def make_atomic(path: str) -> str:
    """Return how a table takes part in transactions."""
    then, path = mount(path), quote(path)
    return f"yt unmount-table {path} --sync && yt set {path}/@atomicity full && {then}"


def back_into_the_queue(consumer: str, queue: str, partition: int, rows: int) -> str:
    """Return what to do with a consumer that is at a row that its queue has not yet, by its rows."""
    consumer, queue = quote(consumer), quote(queue)
    return (
        "Or, if no query has read with this consumer yet, run: yt-exactly-once rewind "
        f"{consumer} {queue} --to earliest --partition {partition} --accept-repeated {rows} --yes"
    )


def create_table(path: str, arguments: Mapping[str, str] = _NONE, marker: str | None = None) -> str:
    """Return what to do without a target: one that had rows is not to be replaced by an empty one.

    Args:
        arguments: further ones of `create_table` that it needs, as Python.
        marker: the column that deletes, which the table must not need.
    """
    return (
        "Check the path. Or, if no query has written there yet, create it: "
        f"yt_exactly_once.create_table({path!r}, {_schema(marker)}{_given(arguments)})"
    )


def create_table_again(
    path: str, arguments: Mapping[str, str], like: str = "", marker: str | None = None
) -> str:
    """Return how a table of a pattern is created as the sink, or a person, has created it before.

    Args:
        arguments: as for `create_table`.
        like: another table of the pattern, if a person creates them.
        marker: as for `create_table`.
    """
    if like:
        path, like = quote(path), quote(like)
        return f"run: yt-exactly-once create-table {path} --like {like}"
    schema = _schema(marker)
    return f"create it: yt_exactly_once.create_table({path!r}, {schema}{_given(arguments)})"


def _schema(marker: str | None) -> str:
    return "df.schema" if marker is None else f"df.drop({marker!r}).schema"


def _given(arguments: Mapping[str, str]) -> str:
    return "".join(f", {name}={value}" for name, value in arguments.items())


def other_tombstones(target: str, path: str) -> str:
    """Return what to do without the tombstones that a target was written with."""
    target = quote(target)
    return (
        f"Restore {path} from its newest copy. Or go without, if no change comes any more that is older than "
        f"a delete. In both cases run: yt remove {target}/@{TOMBSTONES_MARK}"
    )


def other_sequence(target: str) -> str:
    """Return what to do about a target whose rows were compared by another sequence."""
    target = quote(target)
    return (
        "Name the same columns in sequence of changes, in the same order. Or, if all rows and tombstones "
        f"have the new ones, run: yt remove {target}/@{TOMBSTONES_MARK}"
    )


def no_changes(target: str) -> str:
    """Return how a target becomes one of rows that later ones replace, as any other."""
    target = quote(target)
    return f"run: yt remove {target}/@{TOMBSTONES_MARK}"


def new_tombstones(target: str, path: str) -> str:
    """Return what to do with a table that cannot keep tombstones."""
    target, path = quote(target), quote(path)
    return (
        f"Remove it if no change is late: yt remove {path} && yt remove --force {target}/@{TOMBSTONES_MARK}. "
        "The sink creates it again. Changes that are older than a delete then bring keys back"
    )


def create_consumer(consumer: str, queue: str) -> str:
    """Return how a consumer is created and registered."""
    consumer, queue = quote(consumer), quote(queue)
    return f"yt-exactly-once create-consumer {consumer} {queue}"


def new_consumer(queue: str) -> str:
    """Return how a query gets a consumer that has none."""
    made = create_consumer(f"{queue}_consumer", queue)
    return f"{made}, and pass it as consumer_path of the source"


def not_a_consumer(path: str, queue: str, columns: Iterable[Mapping[str, Any]]) -> str:
    """Return what to do with an object that is no consumer: one that was has the offsets of queries."""
    if "queue_path" in {column["name"] for column in columns}:
        path = quote(path)
        return f"yt set {path}/@treat_as_queue_consumer %true"
    return new_consumer(queue)


def register(queue: str, consumer: str) -> str:
    """Return how a consumer is registered, so that the queue keeps what it has not read."""
    queue, consumer = quote(queue), quote(consumer)
    return f"yt register-queue-consumer {queue} {consumer} --vital"


def repair(ledger: str, query: str) -> str:
    """Return how a query gets everything back that its last entry needs."""
    ledger, query = quote(ledger), quote(query)
    return f"yt-exactly-once repair {ledger} --query {query} --apply"


QUEUE_IS_COPY = (
    "Move the queue itself back, if it is still there. Otherwise begin with a new checkpoint after the last "
    "row that is written: the steps are in how-to/recover.md, section 'The queue was put back from a copy'"
)
"""For a copy at the path of a queue: it has the rows that are written, and another id."""

AHEAD = "the function has left batches out, somebody has moved it, or the ledger is an older copy"
"""Why a consumer is after all that the ledger has: only the checkpoint tells which it is."""

ASK_BY_START = "Start the query: if something is wrong, the error says what to do"
"""For that."""


def move_back(ledger: str, query: str, checkpoint: str) -> str:
    """Return how a consumer goes back that is after the row where the checkpoint's next batch begins."""
    ledger, query = quote(ledger), quote(query)
    return (
        f"yt-exactly-once repair {ledger} --query {query} --checkpoint {quote(checkpoint)} --apply"
    )


def share_no_consumer(ledger: str, query: str) -> str:
    """Return what to do about another query that moves the same consumer, and has its entry in a ledger."""
    ledger, query = quote(ledger), quote(query)
    return (
        "Give one of the two queries a consumer and a checkpoint of its own: the steps are in "
        "how-to/recover.md, section 'The consumer has moved'. Or, if that other query is gone, run: "
        f"yt-exactly-once ledger prune {ledger} --query {query} --yes"
    )


def begin_after(ledger: str, query: str) -> str:
    """Return how a query continues whose checkpoint is lost, or is not the one that the ledger needs."""
    ledger, query = quote(ledger), quote(query)
    return (
        "start with a new checkpoint once the consumer is where the ledger ends. Run: "
        f"yt-exactly-once repair {ledger} --query {query} --new-checkpoint --apply"
    )


def grant(user: str, permission: str, path: str) -> str:
    """Return who can grant a permission, and how."""
    vital = ";vital=%true" if permission == "register_queue_consumer" else ""
    name = user if _PLAIN.fullmatch(user) else json.dumps(user, ensure_ascii=False)
    entry = quote(f"{{action=allow;subjects=[{name}];permissions=[{permission}]{vital}}}")
    # As `quote` does, which leaves out quotes that are not needed.
    path = path.replace("'", "'\"'\"'")
    return f"An administrator of that object runs: yt set '{path}/@acl/end' {entry}"
