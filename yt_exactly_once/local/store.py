"""The durable store: one SQLite database in WAL mode, shared by every proxy process of a cluster.

It owns connections, the cluster clock and nothing else. A write runs alone (`BEGIN IMMEDIATE`) and is
on disk when `write` returns: kill -9 of a proxy loses no acknowledged commit. A snapshot is an open
read transaction; everything committed up to its timestamp is visible in it and nothing later is.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

TIMESTAMP_COUNTER_BITS = 30
"""A YTsaurus timestamp is unix seconds shifted by this, plus a counter."""

IDLE_CONNECTIONS = 8
"""Connections of closed snapshots that are kept for the next ones."""

BUSY_TIMEOUT_SECONDS = 60.0
"""How long a writer waits for its turn before SQLite gives up."""


_WRITER_CACHE = 32_000
"""Kilobytes: commits that overwrite rows then rarely leave the cache."""

_READER_CACHE = 4_000
"""Kilobytes; there is a reader for every thread and every open transaction."""

_FORMAT = 6
"""Of the data in the file, kept as `user_version`: from 5 on blocks say what they consist of."""

_PAGE_BYTES = 16_384
"""Rows of a kilobyte then lie within a page; with SQLite's default they take four times as long."""


_LOG_PAGES = 1_000
"""So many pages of the log are copied into the database at a time, beside the commits that follow."""

_MOST_LOG_PAGES = 8 * _LOG_PAGES
"""A commit that finds so many copies them itself, so that the log cannot grow without end."""


class StoreFormatError(Exception):
    """The data were written by another version of the embedded cluster; the text names the remedy."""


class Store:
    """Connections to one database file.

    Args:
        path: the database file; created when missing.

    Raises:
        StoreFormatError: another version wrote the file in a form that this one does not read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()
        self._idle: list[sqlite3.Connection] = []
        self._idle_lock = threading.Lock()
        self._writing = threading.Lock()
        self._turn = path.with_name(f"{path.name}-turn").open("w")
        self._writer = self.connect(_WRITER_CACHE)
        self._writer.execute(f"PRAGMA wal_autocheckpoint = {_MOST_LOG_PAGES}")
        self._copying = threading.Lock()
        self._log_index: int | None = None
        with self.write() as connection:
            self._check_format(connection)
            connection.execute(
                "CREATE TABLE IF NOT EXISTS clock (id INTEGER PRIMARY KEY, last INTEGER NOT NULL)"
            )
            connection.execute("INSERT OR IGNORE INTO clock VALUES (0, 0)")

    def _check_format(self, connection: sqlite3.Connection) -> None:
        """Mark a new file with the format, and refuse one that has another."""
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        is_new = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
        if is_new:
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
        elif found != _FORMAT:
            raise StoreFormatError(
                f"The data directory {self.path.parent} has format {max(found, 1)} of the embedded"
                f" cluster, and this version reads format {_FORMAT}; choose an empty directory, or"
                " serve this one with the version that wrote it and copy its tables over"
            )

    def connect(self, cache: int = _READER_CACHE) -> sqlite3.Connection:
        """Open a new connection in autocommit mode, with so many kilobytes of pages in memory."""
        connection = sqlite3.connect(
            self.path,
            timeout=BUSY_TIMEOUT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        # Counts for a new file only.
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        # NORMAL keeps every commit over a killed process; only a power cut may lose the newest ones.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = -{cache}")
        return connection

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Give a consistent view of the newest committed state."""
        connection = self._thread_connection()
        if connection.in_transaction:
            yield connection
            return
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            # Nothing of the store was changed. A rollback would also make SQLite read all definitions
            # anew if the reader had temporary tables.
            connection.execute("COMMIT")

    def rows(self, query: str) -> list[Any]:
        """Return the rows of one statement, which sees the newest committed state."""
        return self._thread_connection().execute(query).fetchall()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run alone; commit on success, leave no trace on an exception."""
        with self._alone() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        if self._log_pages() >= _LOG_PAGES and self._copying.acquire(blocking=False):
            threading.Thread(target=self._copy_log, daemon=True).start()

    def _copy_log(self) -> None:
        """Copy the log into the database, which waits for the disk; other connections read and write on."""
        try:
            with closing(self.connect()) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            self._copying.release()

    def _log_pages(self) -> int:
        """Return how many pages of the log are not in the database yet, as its index says.

        SQLite tells it only while it copies. The format is fixed: https://www.sqlite.org/walformat.html, 2.1.
        """
        if self._log_index is None:
            # It stays open as long as the process: closing it would drop the locks of all connections.
            self._log_index = os.open(f"{self.path}-shm", os.O_RDONLY)
        (written,) = struct.unpack("=I", os.pread(self._log_index, 4, 16))
        (copied,) = struct.unpack("=I", os.pread(self._log_index, 4, 96))
        return int(written - copied)

    @contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        """Wait for the turn to write, in this process and among all.

        SQLite has waiters look again after a pause, where a busy process wins every time. The kernel
        wakes them in order, and lets go of the turn of a process that dies.
        """
        with self._writing:
            fcntl.flock(self._turn, fcntl.LOCK_EX)
            reader = self._thread_connection()
            # What this thread reads meanwhile, it reads with what it has written.
            self._local.connection = self._writer
            try:
                yield self._writer
            finally:
                self._local.connection = reader
                fcntl.flock(self._turn, fcntl.LOCK_UN)

    def snapshot(self) -> Snapshot:
        """Fix the current state for repeated reads; the caller closes it."""
        with self._idle_lock:
            connection = self._idle.pop() if self._idle else None
        return Snapshot(connection or self.connect(), self._recycle)

    def _recycle(self, connection: sqlite3.Connection) -> None:
        """Keep a connection for the next snapshot: a new one has to read every table's definition."""
        with self._idle_lock:
            if len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def _thread_connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self.connect()
        return connection


class Snapshot:
    """The state of the store at one timestamp.

    Args:
        connection: a connection without a transaction.
        release: takes the connection back when the snapshot is closed.

    Attributes:
        timestamp: timestamp of the newest commit that is visible.
    """

    def __init__(
        self, connection: sqlite3.Connection, release: Callable[[sqlite3.Connection], None]
    ) -> None:
        self.lock = threading.Lock()
        self._connection: sqlite3.Connection | None = connection
        self._release = release
        connection.execute("BEGIN")
        self.timestamp = last_timestamp(connection)

    @property
    def connection(self) -> sqlite3.Connection:
        """An open read transaction; use it under `lock`, and not after `close`."""
        if self._connection is None:
            raise ValueError("the snapshot is closed")
        return self._connection

    def close(self) -> None:
        """Release the snapshot; again is fine."""
        with self.lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            # See `Store.read`.
            connection.execute("COMMIT")
            self._release(connection)


def scalar(connection: sqlite3.Connection, query: str, *values: Any) -> Any:
    """Return the first column of the first row of a query; None without a row."""
    return next(iter(scalars(connection, query, *values)), None)


def scalars(connection: sqlite3.Connection, query: str, *values: Any) -> list[Any]:
    """Return the first column of all rows of a query."""
    return [row[0] for row in connection.execute(query, values)]


def last_timestamp(connection: sqlite3.Connection) -> int:
    """Return the timestamp of the newest commit visible to a connection."""
    return int(connection.execute("SELECT last FROM clock").fetchone()[0])


def next_timestamp(connection: sqlite3.Connection) -> int:
    """Take the next timestamp; only inside `Store.write`."""
    now = int(time.time()) << TIMESTAMP_COUNTER_BITS
    # A transaction of a server has taken one for its start between two commits.
    timestamp = max(last_timestamp(connection) + 2, now)
    connection.execute("UPDATE clock SET last = ?", (timestamp,))
    return timestamp
