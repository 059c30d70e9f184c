"""Answers that are made while they are sent: what they read stays open until the last piece is gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import TypeVar

from yt_exactly_once.local.store import Store

Item = TypeVar("Item")


class Stream(Iterator[Item]):
    """Items of an answer that hold something open.

    Args:
        release: closes what they need; called once, at the end or when the answer is given up.
    """

    def __init__(self, items: Iterator[Item], release: Callable[[], None] | None) -> None:
        self._items = items
        self._release = release

    def __next__(self) -> Item:
        """Return the next item; the end and every failure release what was open."""
        try:
            return next(self._items)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give up; again is fine."""
        release, self._release = self._release, None
        if release is not None:
            release()


def from_snapshot(
    store: Store, read: Callable[[sqlite3.Connection], Iterator[Item]]
) -> Stream[Item]:
    """Return a stream that reads one state of the store; what `read` checks at once fails it whole."""
    snapshot = store.snapshot()
    try:
        return Stream(read(snapshot.connection), snapshot.close)
    except BaseException:
        snapshot.close()
        raise
