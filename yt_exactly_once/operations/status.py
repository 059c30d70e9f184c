"""Where every query is: its last batch in each target, and how far it is behind in each queue partition.

Everything is read from the cluster: the ledgers, the consumers, the queues. The query itself is not asked,
so this works for a query that is stopped or broken too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from yt_exactly_once import advice
from yt_exactly_once.codec.rows import decode
from yt_exactly_once.codec.schema import TIMESTAMP_COLUMN
from yt_exactly_once.commit.entry import LedgerEntry, PartitionOffset, SourceKey
from yt_exactly_once.errors import ExactlyOnceError, TableNotFoundError
from yt_exactly_once.operations import ledgers
from yt_exactly_once.operations.ledgers import Entries, LedgerRow
from yt_exactly_once.operations.query_status import (
    RESTORE_TARGET,
    PartitionStatus,
    QueryStatus,
    QueueStatus,
    TargetStatus,
    TombstonesStatus,
)
from yt_exactly_once.operations.report import escape, tables
from yt_exactly_once.ytsaurus import browsing
from yt_exactly_once.ytsaurus.browsing import or_raise
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.queues import PartitionBounds, RemoteQueue, bounds_of
from yt_exactly_once.ytsaurus.tables import ATTRIBUTES, TOMBSTONES, described
from yt_exactly_once.ytsaurus.tombstones import require_same_tombstones, tombstones_of

if TYPE_CHECKING:
    from yt_exactly_once.spark.compat.next_batch import NextBatch
    from yt_exactly_once.ytsaurus.client import ClusterArguments

_STAMP = pa.schema(
    [("$tablet_index", pa.int64()), ("$row_index", pa.int64()), (TIMESTAMP_COLUMN, pa.uint64())]
)
_ATTRIBUTES = (*ATTRIBUTES, "auto_trim_config", "creation_time", "path")
_LOOKS, _PAUSE_SECONDS = 10, 0.3
"""How often and how far apart a target that lacks rows is asked for them."""

_READABLE = frozenset({"mounted", "frozen"})


class Statuses(list[QueryStatus]):
    """The status of queries; a notebook shows it as tables.

    Attributes:
        unread: why a ledger that was found cannot be read, by its path.
    """

    def __init__(
        self, found: Sequence[QueryStatus], unread: Mapping[str, ExactlyOnceError]
    ) -> None:
        super().__init__(found)
        self.unread = unread

    def _repr_html_(self) -> str:
        lines = [f"{path}: {why}" for path, why in self.unread.items()]
        return tables(self) + "".join(f"<p>{escape(line)}</p>" for line in lines or self._nothing)

    @property
    def _nothing(self) -> list[str]:
        return [] if self else ["no query has committed a batch here"]


def status(*paths: str, query: str | None = None, **cluster: Unpack[ClusterArguments]) -> Statuses:
    """Return the status of queries, those that wrote last first: last batch, lag, rates, problems.

    Everything is read from the cluster, so it works for a query that is stopped or broken too. It costs one
    request for each ledger and each consumer, one for each queue with lag and the column `$timestamp`, and
    one for some hundred of anything else.

    Args:
        *paths: ledgers, targets with a ledger beside them, or folders to search; without any `//home`.
        query: only this one: its name, or the first characters of its id.
        **cluster: `proxy`, `token` and `client_config`; default: `YT_PROXY` and `YT_TOKEN`.

    Returns:
        One `QueryStatus` for each query and ledger. What cannot be read of it is among its `problems`.

    Raises:
        TableNotFoundError: there is nothing at a path.
        LedgerError: a path is a table that is no ledger, and has none.
        ExactlyOnceError: ledgers were found, and none can be read.
    """
    connection = Connection.to(**cluster)
    found, unread = look(connection, ledgers.find_ledgers(connection, paths), query=query)
    if unread and not found:
        raise next(iter(unread.values()))
    return Statuses(found, unread)


def look(
    connection: Connection, paths: Sequence[str], *, query: str | None = None
) -> tuple[list[QueryStatus], dict[str, ExactlyOnceError]]:
    """Return the same as `status`, of one query or all, and why ledgers cannot be read, by path."""
    rows, unread = ledgers.read_ledgers(connection, paths)
    wanted = [row for row in rows if row.entry.is_of(query)]
    return statuses(connection, wanted, ledgers.with_near(connection, rows)), unread


def statuses(
    connection: Connection, rows: Entries, known: Entries, spark: NextBatch | None = None
) -> list[QueryStatus]:
    """Return the status of the queries of some entries, in the order of the entries.

    A copy of an entry that is among them is named by the original, and has no status of its own.

    Args:
        known: all entries that are known, see `ledgers.with_near`: they say which entries count.
        spark: where one of the queries continues, if its checkpoint was read.
    """
    groups: dict[tuple[str, str, str], list[LedgerRow]] = {}
    copies: list[LedgerRow] = []
    for row in rows:
        newest = row.newest(rows)
        if newest is not None and newest.entry.target == row.entry.target:
            copies.append(row)
            continue
        key = row.ledger, row.entry.query_id, row.entry.transaction_id
        groups.setdefault(key, []).append(row)
    if not groups:
        return []
    shown = [one for group in groups.values() for row in group for one in row.by_table()]
    facts = _Facts(connection, shown, spark)
    return [
        _query(connection, facts, group, known, [one for one in copies if one.key == group[0].key])
        for group in groups.values()
    ]


Partitions = Mapping[int, PartitionOffset]


class _Facts:
    """What the cluster says of the tables of some queries, asked with few requests.

    Whatever could not be read is the error.

    Attributes:
        tables: attributes by path; nothing if there is no table.
        tombstones: the same of those of targets that have some, by target.
        written: how many rows an ordered target has ever had, by path.
        spark: where one of the queries continues.
        real_paths: paths of queues without links, by which the server keeps rows of consumers. One that has
            taken the place of a queue goes by the path that the ledger has: its rows are to be read yet.
        rows: times of rows by partition and index, by queue; offsets, by queue and consumer.
    """

    def __init__(self, connection: Connection, rows: Entries, spark: NextBatch | None) -> None:
        self.spark = spark
        self.moment = browsing.now(connection)
        entries = [row.entry for row in rows]
        sources = dict.fromkeys(key for entry in entries for key in entry.offsets)
        pairs = {(queue, consumer): cluster for cluster, queue, consumer, _ in sources if consumer}
        queues = list(dict.fromkeys(queue for _, queue, _, _ in sources))
        paths = dict.fromkeys([*(entry.target for entry in entries), *queues])
        paths |= dict.fromkeys(consumer for _, consumer in pairs)
        self.tables = browsing.attributes_of_all(connection, paths, _ATTRIBUTES)
        self.tombstones = self._tombstones(connection, [entry.target for entry in entries])
        self.real_paths = {
            queue: str(known["path"])
            if (known := self._known(queue)).get("id") == queue_id
            else queue
            for _, queue, _, queue_id in sources
        }
        asked = {
            (queue, consumer): browsing.request(
                "list_queue_consumer_registrations", queue_path=queue, consumer_path=consumer
            )
            for queue, consumer in pairs
        }
        self.registrations = browsing.answers(connection, asked)
        self.bounds = self._bounds(connection, queues)
        self.written = self._written(connection, entries)
        looks: dict[Any, Callable[[], Any]] = {
            queue: partial(_stamps, connection, queue, first_rows)
            for queue, first_rows in self._unread(entries).items()
        }
        for (queue, consumer), cluster in pairs.items():
            if self._known(consumer).get("tablet_state") in _READABLE:
                look = RemoteQueue(connection, self.real_paths[queue], consumer).stored_offsets
                looks[queue, consumer] = partial(look, cluster, range(self._tablets(queue)))
        self.rows = browsing.side_by_side(looks)

    def _tombstones(self, connection: Connection, targets: Sequence[str]) -> dict[str, Any]:
        marked = [target for target in dict.fromkeys(targets) if TOMBSTONES in self._known(target)]
        paths = map(tombstones_of, marked)
        found = browsing.attributes_of_all(connection, paths, _ATTRIBUTES) if marked else {}
        return dict(zip(marked, found.values(), strict=True))

    def _bounds(
        self, connection: Connection, paths: Collection[str]
    ) -> dict[str, list[PartitionBounds] | ExactlyOnceError]:
        """Return what the tablets of tables say, by their paths."""
        asked = {
            path: browsing.request(
                "get_tablet_infos", path=path, tablet_indexes=list(range(self._tablets(path)))
            )
            for path in paths
        }
        return {
            path: info if isinstance(info, ExactlyOnceError) else bounds_of(info["tablets"])
            for path, info in browsing.answers(connection, asked).items()
        }

    def _written(self, connection: Connection, entries: Sequence[LedgerEntry]) -> dict[str, int]:
        """Return how many rows each ordered target has ever had, by path.

        Committed rows appear in an ordered table a moment later, so one that lacks some is asked again.
        """
        needed: dict[str, int] = {}
        for entry in entries:
            known, rows = self._known(entry.target), entry.tally.total_rows
            if not known.get("sorted", True) and known.get("tablet_state") in _READABLE:
                needed[entry.target] = max(rows, needed.get(entry.target, 0))
        counted: dict[str, int] = {}
        for look in range(_LOOKS):
            late = [path for path, rows in needed.items() if counted.get(path, -1) < rows]
            if not late:
                break
            time.sleep(_PAUSE_SECONDS if look else 0)
            for path, bounds in self._bounds(connection, late).items():
                if isinstance(bounds, ExactlyOnceError):
                    del needed[path]
                else:
                    counted[path] = sum(bound.upper for bound in bounds)
        return counted

    def spark_of(self, query: str) -> NextBatch | None:
        """Return where a query continues, if its checkpoint was read."""
        return self.spark if self.spark is not None and self.spark.query_id == query else None

    def _known(self, path: str) -> dict[str, Any]:
        found = self.tables[path]
        return found if isinstance(found, dict) else {}

    def _tablets(self, path: str) -> int:
        return int(self._known(path).get("tablet_count", 0))

    def _unread(self, entries: Sequence[LedgerEntry]) -> dict[str, list[tuple[int, int]]]:
        """Return the first row of each partition that is not committed, by queue, if it has a time."""
        found: dict[str, dict[tuple[int, int], None]] = {}
        for entry in entries:
            for (_, queue, _, queue_id), partitions in entry.offsets.items():
                bounds, known = self.bounds[queue], self._known(queue)
                names = {column["name"] for column in known.get("schema", ())}
                if isinstance(bounds, ExactlyOnceError) or TIMESTAMP_COLUMN not in names:
                    continue
                is_same = queue_id in {"", known["id"]}
                for partition, bound in enumerate(bounds):
                    last = partitions.get(partition)
                    first = (last.end if last else 0) if is_same else bound.lower
                    if bound.lower <= first < bound.upper:
                        found.setdefault(queue, {})[partition, first] = None
        return {queue: list(first_rows) for queue, first_rows in found.items()}


def _stamps(
    connection: Connection, queue: str, first_rows: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    listed = ", ".join(map(str, first_rows))
    query = (
        f"[$tablet_index], [$row_index], [{TIMESTAMP_COLUMN}] from [{queue}] "
        f"where ([$tablet_index], [$row_index]) in ({listed})"
    )
    columns = decode(browsing.selected(connection, query), _STAMP).to_pydict().values()
    rows = zip(*columns, strict=True)
    return {(tablet, row): stamp for tablet, row, stamp in rows if stamp is not None}


def _query(
    connection: Connection, facts: _Facts, group: Entries, known: Entries, copies: Entries
) -> QueryStatus:
    row = group[0]
    entry = row.entry
    newest, successor = row.newest(known), row.successor(known)
    sources = {} if newest or successor else entry.offsets
    queues = [_queue(facts, row, source, partitions) for source, partitions in sources.items()]
    # The query itself may have moved a consumer after its entry was read.
    if any(map(_stray, queues)) and entry.transaction_id in {
        one.entry.transaction_id for one in ledgers.read_ledger(connection, row.ledger)
    }:
        queues = [_with_mover(facts, queue, row, known) for queue in queues]
    return QueryStatus(
        row,
        ledgers.age_seconds(entry),
        targets=tuple(
            _of_entry(facts, one) for one in sorted(group, key=lambda one: one.entry.target)
        ),
        queues=tuple(queues),
        successor=successor,
        newest=newest,
        copies=tuple(copies),
    )


def _with_mover(facts: _Facts, queue: QueueStatus, row: LedgerRow, known: Entries) -> QueueStatus:
    """Say who has moved the consumer of a queue, and what to do, unless it is in its place."""
    where = _stray(queue)
    if queue.problem or not where:
        return queue
    other = ledgers.rival(row, queue.path, queue.consumer or "", known)
    if other is None and queue.is_unclear:
        way = advice.ASK_BY_START
        return replace(queue, problem=f"{where}: {advice.AHEAD}. {way}", remedy=way)
    if other is None:
        spark = facts.spark_of(row.entry.query_id)
        way = row.repair if spark is None else row.move_back(spark.location)
        cause = "it was removed, or another query or a person moved it"
        return replace(queue, problem=f"{where}: {cause}. Run: {way}", remedy=way)
    way = advice.share_no_consumer(other.ledger, other.entry.query_id)
    cause = (
        f"query {other.entry.label}, which writes {other.entry.target}, has this consumer too, and has "
        f"probably moved it. {way}"
    )
    return replace(queue, problem=f"{where}: {cause}", remedy=way)


def _stray(queue: QueueStatus) -> str:
    """Say where a consumer is that the query did not leave there; empty if it is in its place."""
    for last in queue.partitions:
        if last.is_stray:
            left = last.left, last.delivered
            position = str(left[0]) if left[0] == left[1] else f"{left[0]} to {left[1]}"
            return (
                f"the consumer {queue.consumer} is at row {last.consumer} of partition {last.partition}, and "
                f"this query left it at {position}"
            )
    return ""


def _of_entry(facts: _Facts, row: LedgerRow) -> TargetStatus:
    """Return the status of a target; of a pattern what is wrong with the worst of its tables."""
    if row.entry.pattern is None:
        return _target(facts, row)
    tables = tuple(_target(facts, one) for one in row.by_table())
    bad = sorted((one for one in tables if one.problem), key=lambda one: -one.missing)
    known = TargetStatus(
        **vars(row.entry.tally),
        path=row.entry.target,
        state=bad[0].state if bad else "mounted",
        missing=sum(one.missing for one in tables),
        of_tables=tables,
    )
    if not bad:
        return known
    others = f". And {len(bad) - 1} of its other tables" if len(bad) > 1 else ""
    return replace(known, problem=f"{bad[0].path}: {bad[0].problem}{others}")


def _target(facts: _Facts, row: LedgerRow) -> TargetStatus:
    path, tally = row.entry.target, row.entry.tally
    found = facts.tables[path]
    state, missing, problem = "", 0, ""
    if isinstance(found, ExactlyOnceError):
        problem = found.what
    elif found is None:
        state, problem = "missing", "there is no table. Restore it, or begin again"
    else:
        state = str(found.get("tablet_state", found["type"]))
        missing = max(tally.total_rows - facts.written.get(path, tally.total_rows), 0)
        if state != "mounted":
            problem = f"it is {state}. Run: {row.repair}"
    known = TargetStatus(
        **vars(tally),
        path=path,
        state=state,
        missing=missing,
        problem=problem,
        tombstones=_tombstones(facts, row) if path in facts.tombstones else None,
    )
    return replace(known, problem=f"{known.lacks}. {RESTORE_TARGET}") if missing else known


def _tombstones(facts: _Facts, row: LedgerRow) -> TombstonesStatus:
    """Return the status of the tombstones that the target is marked with."""
    target, path = row.entry.target, tombstones_of(row.entry.target)
    found = facts.tombstones[target]
    if isinstance(found, ExactlyOnceError):
        return TombstonesStatus(path, problem=found.what)
    state = "missing" if found is None else str(found.get("tablet_state", found["type"]))
    try:
        info = described(target, or_raise(facts.tables[target]))
        require_same_tombstones(info, str((found or {}).get("id", "")))
    except TableNotFoundError as error:
        state = state if found is None else "replaced"
        return TombstonesStatus(path, state, f"{error.what}. {error.remedy}")
    problem = "" if state == "mounted" else f"it is {state}. Run: {row.repair}"
    return TombstonesStatus(path, state, problem)


def _queue(facts: _Facts, row: LedgerRow, source: SourceKey, partitions: Partitions) -> QueueStatus:
    cluster, path, consumer, _ = source
    known = QueueStatus(cluster, path, consumer or None)
    try:
        info = described(path, or_raise(facts.tables[path]))
        if info.is_sorted:
            return replace(known, problem="the table is sorted, and no queue")
        if info.tablet_state not in _READABLE:
            how = f"it is {info.tablet_state}. Run: yt mount-table {quote(path)} --sync"
            return replace(known, problem=how)
        read = _read(facts, known, row.entry.query_id, source, partitions)
    except ExactlyOnceError as error:
        return replace(known, problem=error.what)
    remedy = advice.QUEUE_IS_COPY if read.is_copy else ""
    return replace(read, problem=_problem(read, row), remedy=remedy)


def _read(
    facts: _Facts, known: QueueStatus, query: str, source: SourceKey, partitions: Partitions
) -> QueueStatus:
    """Return what is known of a queue that can be read; raise what keeps its consumer from being read."""
    _, path, consumer, queue_id = source
    info: Any = facts.tables[path]
    bounds, stamps = or_raise(facts.bounds[path]), or_raise(facts.rows.get(path, {}))
    table = registered = offsets = None
    if consumer:
        table = or_raise(facts.tables[consumer])
        registered = next(iter(or_raise(facts.registrations[path, consumer])), None)
        # One that was removed is at 0 again once it is created.
        offsets = {} if table is None else or_raise(facts.rows.get((path, consumer)))
    is_recreated = bool(queue_id) and info["id"] != queue_id
    spark = facts.spark_of(query)
    begins = spark.starts.get(source, {}) if spark else {}
    found, is_copy = [], False
    for partition, bound in enumerate(bounds):
        last = partitions.get(partition)
        delivered = last.end if last else 0
        first = bound.lower if is_recreated else delivered
        stamp = stamps.get((partition, first))
        time_of_row = None if stamp is None else browsing.row_time(stamp)
        lag = None if time_of_row is None else max(facts.moment - time_of_row, 0.0)
        if is_recreated and time_of_row is not None:
            is_copy |= browsing.is_copied(time_of_row, str(info["creation_time"]))
        found.append(
            PartitionStatus(
                partition=partition,
                delivered=delivered,
                left=last.left if last else 0,
                consumer=None if offsets is None else offsets.get(partition, 0),
                first=bound.lower,
                end=bound.upper,
                lag_seconds=0.0 if first >= bound.upper else lag,
                is_of_another=is_recreated,
                begins=begins.get(partition),
            )
        )
    return replace(
        known,
        real_path=facts.real_paths[path],
        registered=registered is not None if consumer else None,
        vital=None if registered is None else bool(registered["vital"]),
        auto_trim=bool((info.get("auto_trim_config") or {}).get("enable")),
        partitions=tuple(found),
        consumer_state=str(table["tablet_state"]) if table else "",
        is_recreated=is_recreated,
        is_copy=is_copy,
        lost_partitions=0 if is_recreated else sum(number >= len(bounds) for number in partitions),
    )


def _problem(queue: QueueStatus, row: LedgerRow) -> str:
    """Return the worst that is wrong with a queue and its consumer."""
    hint = f"Run: {row.repair}"
    lost = sum(last.lost_rows for last in queue.partitions)
    state = queue.consumer_state
    if queue.is_copy:
        what = "a copy is in the place of the queue, and has rows that the query has read"
        return f"{what}. {advice.QUEUE_IS_COPY}"
    known = {
        "the queue was removed and recreated since the last batch. The query stops with DataLossError, "
        f"unless it has fail_on_data_loss=false. {hint}": queue.is_recreated,
        f"{queue.lost_partitions} partitions are gone, and their rows have other indexes. {hint}": (
            queue.lost_partitions
        ),
        f"{lost} rows were trimmed before the query committed them. It stops with DataLossError, unless "
        "it has fail_on_data_loss=false": lost,
        f"the consumer {queue.consumer} does not exist. {hint}": queue.consumer and not state,
        f"the consumer {queue.consumer} is {state}. {hint}": state not in {"", "mounted"},
        f"the consumer {queue.consumer} is not registered. {hint}": queue.registered is False,
    }
    return next((text for text, is_so in known.items() if is_so), "")
