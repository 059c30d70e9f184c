"""Ledgers as a whole: finding them, and reading their entries.

A ledger carries the attribute `yt_exactly_once_ledger`. One that was created without it is found by its path
until the next start of its query sets the attribute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from yt_exactly_once import advice, errors
from yt_exactly_once.codec.path_pattern import PathPattern
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.judgement import outdates, shares, supersedes
from yt_exactly_once.commit.ledger import (
    EARLIER_LEDGER_SCHEMA,
    HISTORY_SCHEMA,
    LEDGER_MARK,
    require_known_ledger,
)
from yt_exactly_once.commit.tally import TABLES
from yt_exactly_once.config import check_path
from yt_exactly_once.errors import ConfigError, ExactlyOnceError, LedgerError, TableError
from yt_exactly_once.ytsaurus import browsing
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tables import ATTRIBUTES, describe_table, described, require_columns

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import ClusterArguments
    from yt_exactly_once.ytsaurus.tables import TableInfo
    from yt_exactly_once.ytsaurus.transaction import TabletTransaction

DEFAULT_ROOT = "//home"
"""Where ledgers are looked for when no path is given."""

MOST_FOLDERS = 10_000
"""How many folders one search lists at most; each is one request."""

_ROOT_SLASHES = 2
"""A path with no more slashes is a child of the root."""

LEDGER_SUFFIX = "_ledger"
"""What the default name of a ledger adds to the path of its target."""

_ATTRIBUTES = (*ATTRIBUTES, LEDGER_MARK, "creation_time")


@dataclass(frozen=True)
class LedgerRow:
    """One entry, and the ledger that holds it.

    Attributes:
        created: when the ledger was created, ISO 8601.
        pattern: the target of the entry, where the row shows what it says of one of its tables.
    """

    ledger: str
    entry: LedgerEntry
    created: str = field(default="", compare=False)
    pattern: str = field(default="", compare=False)

    @property
    def key(self) -> dict[str, Any]:
        """By which the ledger finds the entry."""
        return {"query_id": self.entry.query_id, "target": self.pattern or self.entry.target}

    def by_table(self) -> list[LedgerRow]:
        """Return what the entry says of each table that it is about."""
        entry = self.entry
        if entry.pattern is None:
            return [self]
        pattern = entry.target
        return [replace(self, entry=entry.of_table(one), pattern=pattern) for one in entry.tables]

    @property
    def near(self) -> list[str]:
        """Paths beside which other ledgers of its targets and consumers may be."""
        pattern = self.entry.pattern
        target = self.entry.target if pattern is None else f"{pattern.folder}/any"
        return [self.ledger, target, *(key[2] for key in self.entry.offsets if key[2])]

    @property
    def named(self) -> str:
        """Where the query is by this entry, in words."""
        entry = self.entry
        return (
            f"query {entry.label} is at batch {entry.batch_id} in {entry.target}, by {self.ledger}"
        )

    @property
    def repair(self) -> str:
        """The command that repairs the query."""
        return advice.repair(self.ledger, self.entry.query_id)

    def move_back(self, checkpoint: str) -> str:
        """Return the command that repairs the query by its checkpoint, too."""
        return advice.move_back(self.ledger, self.entry.query_id, checkpoint)

    def successor(self, rows: Iterable[LedgerRow]) -> LedgerRow | None:
        """Return the entry of the query that has continued this one, with a new checkpoint."""
        return next((one for one in rows if supersedes(one.entry, self.entry)), None)

    def newest(self, rows: Iterable[LedgerRow]) -> LedgerRow | None:
        """Return the entry of the same query that counts in place of this one; nothing if this one counts."""
        found = [one for one in rows if outdates(one.entry, self.entry) or self._is_copy_of(one)]
        return max(found, key=lambda one: one.entry.batch_id, default=None)

    def _is_copy_of(self, one: LedgerRow) -> bool:
        """Return whether one is the same entry in the ledger that was there before."""
        is_same = one.key == self.key and one.entry.transaction_id == self.entry.transaction_id
        return is_same and (one.created, one.ledger) < (self.created, self.ledger)

    def require_unchanged(self, transaction: TabletTransaction) -> None:
        """Check that the entry is the one that was read; raise `ConflictError` if it was written since."""
        found = transaction.lookup(self.ledger, [self.key])[0]
        if found is None or found["transaction_id"] != self.entry.transaction_id:
            raise errors.ConflictError(
                "The entry has changed since it was read: its query is running",
                remedy="Nothing was changed. Look at it again",
                ledger=self.ledger,
                query=self.entry.query_id,
                target=self.entry.target,
            )

    def to_json(self) -> dict[str, Any]:
        """Return the path of the ledger, the name of the query and the columns of the entry, for programs."""
        return {"ledger": self.ledger, "query_name": self.entry.query_name, **self.entry.to_row()}


Entries = Sequence[LedgerRow]


def counting(rows: Entries, known: Entries) -> list[LedgerRow]:
    """Return the entries that count: by all that is known, no other one has taken their place."""
    return [row for row in rows if row.newest(known) is None and row.successor(known) is None]


def find_ledgers(connection: Connection, paths: Sequence[str] = ()) -> list[str]:
    """Return the paths of ledgers.

    A search lists every folder below a root, some hundred with one request. It does not follow links. Name a
    deep folder on a large cluster.

    Args:
        paths: ledgers, targets (their ledger has the default name beside them), and folders to search.
            Without any, `//home` is searched.

    Raises:
        TableNotFoundError: a path is neither of them.
        LedgerError: a path is a table that is no ledger, and has none.
        ConfigError: a path is malformed, or there are too many folders.
    """
    found: dict[str, None] = {}
    for path in paths or [DEFAULT_ROOT]:
        check_path(path, "path")
        if PathPattern.of(path) is not None:
            found |= dict.fromkeys(row.ledger for row in entries_of(connection, path))
            continue
        attributes = browsing.attributes_of(connection, path, ["type", LEDGER_MARK])
        if attributes is None:
            raise errors.TableNotFoundError(
                "There is nothing at the path",
                remedy="Name a ledger, a target with a ledger beside it, or a folder to search",
                path=path,
            )
        if attributes["type"] == "table":
            found[_ledger_at(connection, path, attributes)] = None
        else:
            found |= dict.fromkeys(_search(connection, path))
    return sorted(found)


def _ledger_at(connection: Connection, path: str, attributes: dict[str, Any]) -> str:
    if LEDGER_MARK in attributes:
        return path
    for candidate in (path, path + LEDGER_SUFFIX):
        with suppress(LedgerError, errors.TableNotFoundError):
            _require_ledger(connection, candidate)
            return candidate
    # That of a sink with several targets is named after another one.
    return entries_of(connection, path)[0].ledger


def _require_ledger(
    connection: Connection, path: str, found: dict[str, Any] | None = None
) -> TableInfo:
    """Check that a table is a ledger, by its attributes if those were read."""
    if found is None:
        found = browsing.attributes_of(connection, path, _ATTRIBUTES)
    require_known_ledger(found or {}, path)
    info = described(path, found)
    remedy = "Pass the path that the sink has as ledger_path"
    require_columns(info, EARLIER_LEDGER_SCHEMA, "a ledger", LedgerError, remedy)
    return info


def _search(connection: Connection, root: str) -> Iterator[str]:
    folders, listed = [root], 0
    while folders:
        listed += len(folders)
        if listed > MOST_FOLDERS:
            raise ConfigError(
                f"There are more than {MOST_FOLDERS} folders below {root}",
                remedy="Name the ledgers, or a deeper folder",
            )
        held = browsing.children(connection, folders, ["type", LEDGER_MARK])
        folders = []
        for folder, some in held.items():
            for child in some:
                path = f"{folder}/{browsing.escaped(child['name'])}"
                # The cluster hides the attributes of what the user may not read.
                is_hidden = "type" not in child and path.endswith("_ledger")
                if child.get("type") == "map_node":
                    folders.append(path)
                elif is_hidden or LEDGER_MARK in child:
                    yield path


def ledger(
    *paths: str, query: str | None = None, **cluster: Unpack[ClusterArguments]
) -> list[LedgerRow]:
    """Return the entries of ledgers: what each query has committed last in each target.

    Args:
        *paths: ledgers, targets with a ledger beside them, or folders to search; without any `//home`.
        query: only this one: its name, or the first characters of its id.
        **cluster: `proxy`, `token` and `client_config`; default: `YT_PROXY` and `YT_TOKEN`.

    Raises:
        TableNotFoundError: there is nothing at a path.
        LedgerError: a path is a table that is no ledger, and has none.
        ExactlyOnceError: a ledger that was found cannot be read.
    """
    connection = Connection.to(**cluster)
    rows = read_ledger(connection, *find_ledgers(connection, paths))
    return [row for row in rows if row.entry.is_of(query)]


def history(
    path: str,
    *,
    query: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    **cluster: Unpack[ClusterArguments],
) -> list[LedgerRow]:
    """Return the last batches of queries whose sink has `history_path=path`, the newest first.

    A batch may be missing: the history is written after the commit, and nothing waits for it.

    Args:
        path: the table.
        query: only this one: its name, or the first characters of its id.
        since: only batches that were committed then or later, by the clock of their driver. A time without a
            zone is UTC.
        until: only batches that were committed before; as `since`.
        **cluster: `proxy`, `token` and `client_config`; default: `YT_PROXY` and `YT_TOKEN`.

    Raises:
        TableError: the table is not there, or is no history.
    """
    first, end = (
        bound.replace(tzinfo=bound.tzinfo or UTC) if bound else None for bound in (since, until)
    )
    found = []
    for row in read_history(Connection.to(**cluster), path):
        moment = datetime.fromisoformat(row.entry.committed_at)
        is_late = first is None or moment >= first
        if row.entry.is_of(query) and is_late and (end is None or moment < end):
            found.append(row)
    return found


def read_ledger(connection: Connection, *paths: str) -> list[LedgerRow]:
    """Return all entries of some ledgers, the newest of each first; raise why one cannot be read."""
    rows, unread = read_ledgers(connection, paths)
    for error in unread.values():
        raise error
    return rows


def read_ledgers(
    connection: Connection, paths: Sequence[str]
) -> tuple[list[LedgerRow], dict[str, ExactlyOnceError]]:
    """Return the entries of all ledgers that can be read, and why each of the others cannot."""

    def read(path: str) -> list[LedgerRow]:
        attributes = browsing.or_raise(found[path])
        _require_ledger(connection, path, attributes).require_mounted()
        return _entries(connection, path, str((attributes or {}).get("creation_time", "")))

    found = browsing.attributes_of_all(connection, paths, _ATTRIBUTES)
    all_rows = browsing.side_by_side({path: partial(read, path) for path in paths})
    unread = {path: why for path, why in all_rows.items() if isinstance(why, ExactlyOnceError)}
    rows = [row for some in all_rows.values() if isinstance(some, list) for row in some]
    return rows, unread


def read_history(connection: Connection, path: str) -> list[LedgerRow]:
    """Return the entries of all batches in a table that a sink has as `history_path`, the newest first."""
    info = describe_table(connection, path)
    remedy = "Pass the path that the sink has as history_path"
    earlier = [column for column in HISTORY_SCHEMA if column["name"] != TABLES]
    require_columns(info, earlier, "a history", TableError, remedy)
    info.require_mounted()
    return _entries(connection, path)


def _entries(connection: Connection, path: str, created: str = "") -> list[LedgerRow]:
    rows = [
        LedgerRow(path, LedgerEntry.from_row(row), created)
        for row in browsing.all_rows(connection, path)
    ]
    return sorted(rows, key=lambda row: row.entry.committed_at, reverse=True)


def entries_of(connection: Connection, target: str, ledger: str | None = None) -> list[LedgerRow]:
    """Return the entries of a target, of each query the one that counts.

    Args:
        target: a table, also one of a pattern, or a pattern.
        ledger: path of the ledger; default: all in the folder of the target, and those above that know it.
            That of a sink with several targets is named after the first one in alphabetical order.

    Raises:
        LedgerError: no ledger, or no entry of the target.
    """
    paths = [ledger] if ledger else list(ledgers_near(connection, target))
    rows = _of_target(connection, target, paths, ledger)
    if not ledger:
        # That of a pattern is in the folder of all its tables. Others above need not be readable.
        with suppress(ExactlyOnceError) if rows else nullcontext():
            above = [one for one in _ledgers_above(connection, target) if one not in paths]
            rows += _of_target(connection, target, above, None)
    if rows:
        return [row for row in rows if row.newest(rows) is None]
    raise LedgerError(
        "The ledger has no entry of this target"
        if ledger
        else "No ledger in the folder of this target has an entry of it",
        remedy="Check the path of the target, and pass the path that the sink has as ledger_path. If no "
        "batch was ever written, start the query with a new checkpoint location",
        target=target,
        ledger=ledger,
    )


def tables_of(connection: Connection, target: str, ledger: str | None = None) -> list[str]:
    """Return the tables of a target: of a pattern all that queries have written, by their entries."""
    if PathPattern.of(target) is None:
        return [target]
    rows = entries_of(connection, target, ledger)
    found = sorted({path for row in rows for path in row.entry.tables})
    if not found:
        raise LedgerError(
            "The query has written no table of this path yet",
            remedy="Look at it: yt-exactly-once status",
            target=target,
            ledger=rows[0].ledger,
        )
    return found


def _of_target(
    connection: Connection, target: str, paths: Sequence[str], ledger: str | None
) -> list[LedgerRow]:
    """Return the rows of a table or a pattern in some ledgers."""
    found, unread = read_ledgers(connection, paths)
    rows = [row for row in found if row.entry.target == target]
    for row in found:
        if row.entry.pattern is not None and target in row.entry.tables:
            rows += [one for one in row.by_table() if one.entry.target == target]
    for path, why in unread.items():
        # Of the ledgers in the folder, some may belong to others.
        if not rows or path in {ledger, target + LEDGER_SUFFIX}:
            raise why
    return rows


def _ledgers_above(connection: Connection, target: str) -> Iterator[str]:
    """Yield the ledgers in the folders above that of a target."""
    above = browsing.parent(target)
    while above.count("/") > _ROOT_SLASHES:
        yield from browsing.marked(connection, [above], LEDGER_MARK)
        above = browsing.parent(above)


def ledgers_near(connection: Connection, target: str) -> Iterator[str]:
    """Yield the ledgers in the folder of a target, the one beside it first; of a pattern, in its folder."""
    pattern = PathPattern.of(target)
    if pattern is not None:
        yield from browsing.marked(connection, [f"{pattern.folder}/any"], LEDGER_MARK)
        return
    beside = target + LEDGER_SUFFIX
    with suppress(LedgerError, TableError):
        _require_ledger(connection, beside)
        yield beside
    for path in browsing.marked(connection, [target], LEDGER_MARK):
        if path != beside:
            yield path


def with_near(connection: Connection, rows: Entries) -> list[LedgerRow]:
    """Return entries and those of other ledgers `near`, of which those that cannot be read are left out."""
    return [*rows, *near(connection, rows)[0]]


def near(
    connection: Connection, rows: Entries
) -> tuple[list[LedgerRow], dict[str, ExactlyOnceError]]:
    """Return what `read_ledgers` does of other ledgers: those beside their ledgers, targets and consumers."""
    try:
        beside = {path for row in rows for path in row.near}
        paths = set(browsing.marked(connection, beside, LEDGER_MARK))
    except ExactlyOnceError as error:
        return [], {"a folder near by": error}
    return read_ledgers(connection, sorted(paths - {row.ledger for row in rows}))


def rival(row: LedgerRow, queue: str, consumer: str, known: Entries) -> LedgerRow | None:
    """Return the query that has moved a consumer of another one last, of those known."""
    found = [one for one in known if shares(one.entry, row.entry, queue, consumer)]
    return max(found, key=lambda one: one.entry.committed_at, default=None)


def age_seconds(entry: LedgerEntry) -> float | None:
    """Return how long ago an entry was written, by this machine's clock and that of the driver."""
    try:
        written = datetime.fromisoformat(entry.committed_at)
    except ValueError:
        return None
    return max((datetime.now(UTC) - written).total_seconds(), 0.0)


def queue_paths(entries: Entries) -> dict[str, str]:
    """Return the last path of each queue that was read, by its object id, or by its path without one."""
    rows = sorted(entries, key=lambda row: row.entry.committed_at)
    return {key[3] or key[1]: key[1] for row in rows for key in row.entry.offsets}


def overlaps_and_gaps(
    entries: Sequence[LedgerRow], *, tolerates_repeats: bool = False
) -> Iterator[str]:
    """Say which rows of a queue several queries have read, and which none has, between those that were read.

    Each query counts its own rows only. A query with a new checkpoint that begins too early repeats rows, and
    one that begins too late loses some: both agree with the sum of what the queries have counted.

    Args:
        tolerates_repeats: whether rows that come twice have no effect, so that only gaps matter.
    """
    paths = queue_paths(entries)
    ranges: dict[tuple[str, str, int], list[tuple[int, int, str]]] = {}
    for row in entries:
        for (_, queue, _, queue_id), offsets in row.entry.offsets.items():
            which = queue_id or queue
            for partition, offset in offsets.items():
                read = (offset.first, offset.end, row.entry.label)
                ranges.setdefault((paths[which], which, partition), []).append(read)
    for (queue, _, partition), reads in sorted(ranges.items()):
        reads.sort()
        known, last = reads[0][1], reads[0][2]
        for first, end, query in reads[1:]:
            where = f"of partition {partition} of {queue}"
            if first < known and first < end and not tolerates_repeats:
                yield (
                    f"rows {first} to {min(known, end) - 1} {where}: the queries {last} and {query} have "
                    "both read them, so they may be there twice"
                )
            elif first > known:
                yield f"rows {known} to {first - 1} {where}: no query has read them, so they may be lost"
            if end >= known:
                known, last = end, query
