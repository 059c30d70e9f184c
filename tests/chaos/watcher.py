"""A reader beside the drivers, looking for batches that are visible in part.

Sorted targets are compared with the ledger at one timestamp: the newest batch must be there with as many
rows as its entry says, and no later one. Ordered tables have no snapshots: what a look finds must be
covered by the ledger afterwards, a batch in the ledger must be whole in the next look, and a batch seen
before that must, at the end, have been seen whole.
"""

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from yt.wrapper import YtClient

from tests.chaos.messages import BATCH_COLUMN
from tests.chaos.stage import Stage, Subject
from tests.flows import Entry, ledger_entries

_PAUSE_SECONDS = 0.25


@dataclass(frozen=True)
class AtTimestamp:
    """A client whose queries all read at one timestamp.

    Attributes:
        timestamp: of its reads.
    """

    client: YtClient
    timestamp: int

    def exists(self, path: str) -> bool:
        """Tell whether something is at a path, now."""
        return bool(self.client.exists(path))

    def select_rows(self, query: str) -> Any:
        """Query at the timestamp."""
        return self.client.select_rows(query, timestamp=self.timestamp)


class Watcher(threading.Thread):
    """Looks at every target in turn, until it is told to stop.

    Attributes:
        looks: how often it has looked.
        failed_looks: how often a table could not be read, for instance while it was unmounted.
        partial: per target, batches seen in part, and how.
    """

    def __init__(self, stage: Stage, client: YtClient) -> None:
        super().__init__(daemon=True)
        self.looks = 0
        self.failed_looks = 0
        self.partial: dict[str, dict[int, str]] = defaultdict(dict)
        self.error: BaseException | None = None
        self._stage = stage
        self._client = client
        self._taken = dict.fromkeys((one.name for one in stage.subjects), 0)
        self._newest = dict.fromkeys((one.name for one in stage.subjects), -1)
        self._ahead: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._stop_looking = threading.Event()

    def slowest(self) -> int:
        """Return how many rows of the queue the slowest query has taken."""
        return min(self._taken.values())

    def run(self) -> None:
        try:
            while not self._stop_looking.is_set():
                for subject in self._stage.subjects:
                    self._look(subject)
                    self._stop_looking.wait(_PAUSE_SECONDS)
        except BaseException as error:
            self.error = error
            raise

    def finish(self, final: dict[str, Counter[int]]) -> None:
        """Stop looking, and judge what was seen ahead of the ledger.

        Args:
            final: rows of every batch, per query.

        Raises:
            BaseException: what ended it before.
        """
        self._stop_looking.set()
        self.join()
        if self.error is not None:
            raise self.error
        for name, batches in self._ahead.items():
            for batch, counts in batches.items():
                if counts - {final[name][batch]}:
                    self._note(name, batch, f"{sorted(counts)} of {final[name][batch]} rows")

    def _look(self, subject: Subject) -> None:
        try:
            if subject.plan.is_sorted:
                timestamp = self._client.generate_timestamp()
                entry = self._entry(AtTimestamp(self._client, timestamp), subject)
                self._check_snapshot(subject, entry, timestamp)
            else:
                entry = self._entry(self._client, subject)
                self._check_order(subject, entry)
        except Exception:  # noqa: BLE001 - a proxy has died, a table is away: look again
            self.failed_looks += 1
            return
        self.looks += 1
        if entry is not None:
            taken = entry.ends[self._stage.queue.path]
            self._taken[subject.name] = max(self._taken[subject.name], sum(taken.values()))

    def _entry(self, client: Any, subject: Subject) -> Entry | None:
        entries = ledger_entries(client, subject.ledger)
        return entries[0] if entries else None

    def _check_snapshot(self, subject: Subject, entry: Entry | None, timestamp: int) -> None:
        newest = entry.batch_id if entry else -1
        seen = self._batches(subject, newest, timestamp=timestamp)
        for batch in seen:
            if batch > newest:
                self._note(subject.name, batch, f"{seen[batch]} rows, the ledger is at {newest}")
        self._check_newest(subject, entry, seen)

    def _check_order(self, subject: Subject, entry: Entry | None) -> None:
        newest = entry.batch_id if entry else -1
        before = self._newest[subject.name]
        if before > newest:
            self._note(subject.name, before, f"rows seen before the ledger came to {newest}")
        seen = self._batches(subject, newest)
        for batch in seen:
            if batch > newest:
                self._ahead[subject.name][batch].add(seen[batch])
        self._newest[subject.name] = max(seen, default=-1)
        self._check_newest(subject, entry, seen)

    def _check_newest(self, subject: Subject, entry: Entry | None, seen: Counter[int]) -> None:
        if entry is not None and seen[entry.batch_id] != entry.row_count:
            self._note(
                subject.name, entry.batch_id, f"{seen[entry.batch_id]} of {entry.row_count} rows"
            )

    def _batches(self, subject: Subject, since: int, **options: Any) -> Counter[int]:
        found = subject.select(
            self._client,
            f"{BATCH_COLUMN}, sum(1) as n",
            f"where {BATCH_COLUMN} >= {since} group by {BATCH_COLUMN}",
            **options,
        )
        return Counter({row[BATCH_COLUMN]: row["n"] for row in found})

    def _note(self, name: str, batch: int, what: str) -> None:
        self.partial[name].setdefault(batch, what)
