"""The order of modifications: requests of one transaction run side by side and carry numbers.

Every client of a transaction counts its own requests from zero. Rows reach the transaction in that order,
whichever request is decoded first; what is missing at the commit makes it fail.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from weakref import WeakKeyDictionary

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tablets.modifications import Batch
from yt_exactly_once.local.tablets.transactions import TabletTransaction

_MAX_AHEAD = 10_000
"""How many requests may wait for one that has not come."""


@dataclass
class _Source:
    next_number: int = 0
    waiting: dict[int, Sequence[Batch]] = field(default_factory=dict)


@dataclass
class _Sources:
    lock: threading.Lock = field(default_factory=threading.Lock)
    by_id: dict[int, _Source] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)


class Sequences:
    """The numbers of all transactions of a proxy; they are forgotten with their transactions.

    Attributes:
        committing: ids of transactions whose commit a fault holds back.
    """

    def __init__(self) -> None:
        self.committing: set[str] = set()
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[TabletTransaction, _Sources] = WeakKeyDictionary()

    def new_source(self, transaction: TabletTransaction) -> int:
        """Return the number by which one more client of a transaction is known."""
        return next(self._of(transaction).numbers)

    def put(
        self, transaction: TabletTransaction, source_id: int, number: int, batches: Sequence[Batch]
    ) -> None:
        """Hand modifications on as soon as all that come before them are there."""
        sources = self._of(transaction)
        with sources.lock:
            source = sources.by_id.setdefault(source_id, _Source())
            if number < source.next_number or number in source.waiting:
                raise YtError(f"Modifications with sequence number {number} were received already")
            if number - source.next_number > _MAX_AHEAD:
                raise YtError(
                    f"Sequence number {number} is too far ahead of {source.next_number}, which is"
                    " expected next"
                )
            source.waiting[number] = batches
            while source.next_number in source.waiting:
                transaction.buffer(source.waiting.pop(source.next_number))
                source.next_number += 1

    def check_complete(self, transaction: TabletTransaction) -> None:
        """Refuse a commit, with 11003, while modifications wait for others."""
        sources = self._of(transaction)
        with sources.lock:
            for source in sources.by_id.values():
                if source.waiting:
                    raise YtError(
                        f"Cannot commit transaction {transaction.id}: modifications with sequence"
                        f" number {source.next_number} are missing",
                        Code.INVALID_TRANSACTION_STATE,
                    )

    def _of(self, transaction: TabletTransaction) -> _Sources:
        with self._lock:
            return self._known.setdefault(transaction, _Sources())
