"""The history of batches: ledger entries that later ones have replaced, kept for people.

A thread of its own writes it after the commit, so no batch waits for it. What cannot be written is left out:
the ledger alone counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.ledger import HISTORY_SCHEMA
from yt_exactly_once.observability import Emitter, Event
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tables import ensure_table, store_rows

KEPT = 1_000
"""Batches of a query that stay; every hundred batches those before them are removed."""

_KEYS_PER_DELETE = 100
_MOST_WAITING = 100


class PastBatches:
    """Writes the entries of committed batches into a table, which the first one creates."""

    def __init__(self, connection: Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._is_there = False
        self._waiting: list[Future[None]] = []
        # Not a daemon: the last batch of a program is written before the process ends.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="yt-history")

    def add(self, entry: LedgerEntry, targets: Sequence[str], emit: Emitter) -> None:
        """Have an entry written for every target, soon; emit what fails."""
        self._waiting = [one for one in self._waiting if not one.done()]
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.append(self._thread.submit(self._write, entry, targets, emit))

    def _write(self, entry: LedgerEntry, targets: Sequence[str], emit: Emitter) -> None:
        try:
            if not self._is_there:
                ensure_table(self._connection, self._path, HISTORY_SCHEMA, {})
                self._is_there = True
            rows = [replace(entry, target=target).to_row() for target in targets]
            last = entry.batch_id - KEPT
            is_due = last % _KEYS_PER_DELETE == 0
            old = range(max(last - _KEYS_PER_DELETE, 0), last) if is_due else ()
            keys = [
                {"query_id": entry.query_id, "target": target, "batch_id": number}
                for target in targets
                for number in old
            ]
            store_rows(self._connection, self._path, rows, keys)
        except Exception as error:  # noqa: BLE001 - nobody else reads the error of this thread
            emit(Event.HISTORY_FAILED, path=self._path, error=str(error))
