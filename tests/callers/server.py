"""A cluster in memory: tables, transactions, sessions, and the network in front of them.

Rules that the outcome depends on are the server's: the first committer wins, -0.0 and 0.0 are one key, a
session admits one epoch. A request may fail, or be the last one of its process.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa
from yt import yson
from yt.common import YtError
from yt.wrapper.errors import YtResolveError
from yt.yson.yson_types import YsonStringProxy

from tests.callers.mishaps import CrashedError, Death, How, Request, TaskDiedError

Row = dict[str, Any]

_NO_SUCH_TRANSACTION, _CONFLICT, _UNRESOLVED = 11000, 1700, 500
_NO_ACCESS = 901
NO_SUCH_TABLET = "No such tablet"

PRODUCER_SCHEMA = [
    {"name": "session_id", "type": "string", "sort_order": "ascending"},
    {"name": "sequence_number", "type": "int64"},
    {"name": "user_meta", "type": "any"},
]
CONSUMER_SCHEMA = [
    {"name": name, "type": kind, "sort_order": "ascending"}
    for name, kind in (
        ("queue_cluster", "string"),
        ("queue_path", "string"),
        ("partition_index", "uint64"),
    )
] + [{"name": "offset", "type": "uint64"}]


@dataclass
class Table:
    """One object of the cluster.

    Attributes:
        kind: `table`, `queue_producer` or `queue_consumer`.
        tablets: rows of an ordered table, per tablet.
        rows: version and row of a sorted table, by key.
    """

    kind: str
    id: str
    schema: list[dict[str, Any]]
    tablet_count: int = 1
    tablets: dict[int, list[Row]] = field(default_factory=dict)
    rows: dict[tuple[Any, ...], tuple[int, Row | None]] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """Names of the key columns; none for an ordered table."""
        return [column["name"] for column in self.schema if column.get("sort_order")]

    def key(self, row: Row) -> tuple[Any, ...]:
        """Return the key of a row, as the server compares it: -0.0 equals 0.0."""
        return tuple(row.get(name) for name in self.keys)

    def all_rows(self) -> list[Row]:
        if self.keys:
            return [row for _, row in self.rows.values() if row is not None]
        return [row for tablet in sorted(self.tablets) for row in self.tablets[tablet]]


class Write(NamedTuple):
    """One row that a request writes or deletes."""

    path: str
    row: Row
    deletes: bool = False
    update: bool = False


@dataclass
class Transaction:
    """An open tablet transaction."""

    start: int
    rows: dict[str, dict[tuple[Any, ...], tuple[int, Row | None]]]
    writes: list[Write] = field(default_factory=list)


class Server:
    """The cluster, and the network in front of it.

    Args:
        old: of a version that stores Arrow binaries for `any` as strings.
    """

    def __init__(self, *, old: bool = False) -> None:
        self.old = old
        self.tables: dict[str, Table] = {}
        self.transactions: dict[str, Transaction] = {}
        self.version = 0
        self.between: Callable[[], None] = lambda: None
        self._ids = count(1)
        self._death: Death | None = None
        self._requests: Counter[Request] = Counter()
        self._dead = self._is_out = False
        self.in_task = False

    def start_process(self, death: Death | None) -> None:
        """Serve a new driver process; what the old one left open, its lease ends."""
        self._death, self._dead, self._is_out = death, False, False
        self._requests.clear()
        self.transactions.clear()
        self.in_task = False

    def require_alive(self) -> None:
        """Check that the process of the driver still runs.

        Raises:
            CrashedError: it does not.
        """
        if self._dead:
            raise CrashedError

    def crash(self) -> None:
        """End the process of the driver.

        Raises:
            CrashedError: always.
        """
        self._dead = True
        raise CrashedError

    def create(
        self, kind: str, path: str, schema: list[dict[str, Any]], tablet_count: int = 1
    ) -> None:
        """Create and mount a table."""
        self.tables[path] = Table(kind, f"table-{next(self._ids)}", schema, tablet_count)

    def restore(self, path: str, copy: Table) -> None:
        """Put a copy of a table in its place: another object with older rows."""
        self.tables[path] = replace(copy, id=f"table-{next(self._ids)}", rows=dict(copy.rows))

    def put_back(self, path: str, copy: Table) -> None:
        """Put older rows back into a table, which stays the same object."""
        if path in self.tables:
            self.tables[path] = replace(deepcopy(copy), id=self.tables[path].id)

    @contextmanager
    def request(self, kind: Request | None = None) -> Iterator[None]:
        """Execute one request, or what happens instead; nothing happens to one without a kind."""
        self.between()
        self.require_alive()
        how = None
        if kind is not None:
            if self._death is not None and self._death[:2] == (kind, self._requests[kind]):
                how = self._death.how
            self._requests[kind] += 1
        if how is How.OUTAGE:
            self._is_out = True
        if self._is_out or how is How.LOST_REQUEST:
            raise ConnectionResetError
        match how:
            case How.REFUSED:
                message = "No access"
                raise YtError(message, code=_NO_ACCESS)
            case How.CRASH_BEFORE | How.TASK_DIES_BEFORE:
                self._end(how)
        yield
        match how:
            case How.LOST_ANSWER:
                raise ConnectionResetError
            case How.CRASH_AFTER | How.TASK_DIES_AFTER:
                self._end(how)

    def _end(self, how: How) -> None:
        is_task = how in {How.TASK_DIES_BEFORE, How.TASK_DIES_AFTER} and self.in_task
        if not is_task:
            self.crash()
        raise TaskDiedError

    def find(self, path: str) -> Table:
        """Return a table.

        Raises:
            YtResolveError: there is none.
        """
        if path not in self.tables:
            raise YtResolveError({"message": f"Node {path} has no child", "code": _UNRESOLVED})
        return self.tables[path]

    def begin(self) -> str:
        name = f"transaction-{next(self._ids)}"
        rows = {path: dict(table.rows) for path, table in self.tables.items()}
        self.transactions[name] = Transaction(self.version, rows)
        return name

    def transaction(self, name: str) -> Transaction:
        """Return an open transaction.

        Raises:
            YtError: it is not open.
        """
        if name not in self.transactions:
            message = f"No such transaction {name}"
            raise YtError(message, code=_NO_SUCH_TRANSACTION)
        return self.transactions[name]

    def commit(self, name: str) -> None:
        """Commit; the first committer wins.

        Raises:
            YtError: another one changed a row first.
        """
        done = self.transaction(name)
        del self.transactions[name]
        for write in done.writes:
            table = self.find(write.path)
            if table.keys:
                version = table.rows.get(table.key(write.row), (0, None))[0]
                if version > done.start:
                    message = "Row lock conflict"
                    raise YtError(message, code=_CONFLICT)
        self.apply(done.writes)

    def apply(self, writes: Sequence[Write]) -> None:
        """Make rows visible, the last value of a key wins.

        Raises:
            YtError: a row is for a tablet that is not there.
        """
        for path, row, *_ in writes:
            if int(row.get("$tablet_index", 0)) >= self.find(path).tablet_count:
                raise YtError(NO_SUCH_TABLET)
        self.version += 1
        for path, row, deletes, update in writes:
            table = self.find(path)
            if not table.keys:
                tablet = int(row.get("$tablet_index", 0))
                plain = {name: value for name, value in row.items() if not name.startswith("$")}
                table.tablets.setdefault(tablet, []).append(plain)
                continue
            key = table.key(row)
            before = table.rows.get(key, (0, None))[1] or {}
            value = None if deletes else {**(before if update else {}), **row}
            table.rows[key] = (self.version, value)

    def decoded(self, body: bytes | memoryview, wire: Any) -> list[Row]:
        if wire != "arrow":
            return [bare(row) for row in yson.loads(bytes(body), yson_type="list_fragment")]
        with pa.ipc.open_stream(body) as stream:
            table = stream.read_all()
        rows = table.to_pylist()
        for column in table.schema:
            if (column.metadata or {}).get(b"YtType") == b"yson":
                for row in rows:
                    row[column.name] = self._any_of(row[column.name])
            elif pa.types.is_binary(column.type):
                for row in rows:
                    value = row[column.name]
                    row[column.name] = None if value is None else value.decode()
        return rows

    def _any_of(self, value: bytes | None) -> Any:
        if value is None or self.old:
            return value
        return bare(yson.loads(value))


def bare(value: Any) -> Any:
    """Return a value of YSON as one of Python; the types of YSON do not equal those of Python."""
    for kind in (bool, int, float, str, bytes):
        if isinstance(value, kind):
            is_flag = isinstance(value, yson.YsonBoolean)
            return bool(value) if is_flag else kind(value)
    if isinstance(value, dict):
        return {bare(name): bare(part) for name, part in value.items()}
    if isinstance(value, list):
        return [bare(part) for part in value]
    if isinstance(value, YsonStringProxy):
        # Bytes that are no text.
        return bytes(value._bytes)
    assert value is None or isinstance(value, yson.YsonEntity), repr(value)
    return None
