"""The queue agent of the cluster: a thread that trims queues now and then, when it is asked for.

The step itself belongs to `trimming`; without the thread a test takes the step when it wants.
"""

from __future__ import annotations

import logging
import sqlite3
import threading

from yt_exactly_once.local.cypress.tree import Cypress
from yt_exactly_once.local.queues import trimming
from yt_exactly_once.local.store import Store

_LOGGER = logging.getLogger(__name__)


class QueueAgent:
    """Trims every queue after each period, as long as the process lives.

    Args:
        period: seconds between two steps.
    """

    def __init__(self, store: Store, cypress: Cypress, period: float) -> None:
        self._store = store
        self._cypress = cypress
        self._period = period
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="queue agent", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the step that is running."""
        self._done.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._done.wait(self._period):
            try:
                trimming.trim_all(self._store, self._cypress)
            except sqlite3.OperationalError:
                # The store was busy for very long; the next step does what this one did not.
                _LOGGER.warning("Queues were not trimmed", exc_info=True)
