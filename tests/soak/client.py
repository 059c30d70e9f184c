"""One client of the soak: a thread with a YTsaurus client of its own and a seeded stream of work.

It never retries and never guesses: every piece of work ends as acknowledged, refused or unknown.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from yt.common import YtError, YtResponseError
from yt.wrapper import YtClient
from yt.wrapper.errors import YtProxyUnavailable

from tests.soak import stage
from tests.soak.oracle import row_name
from tests.soak.records import ACKED, FAILED, UNKNOWN, ClientReport, Write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REQUEST_SECONDS = 40.0
"""A request that takes longer was forgotten: nothing in the soak takes nearly as long."""

_LEASE_MILLISECONDS = 60_000
_MAX_ROWS = 20
_KEPT_EPOCHS = 0.5
_PULLED = 50
_CONSUMER_EVERY = 8
"""One client of so many consumes; more of them would only get in each other's way."""


class SoakClient:
    """Works until a moment, then reports.

    Args:
        url: the one proxy it talks to, since transactions live in a proxy.
        number: distinguishes clients.
        seed: of the whole soak.
    """

    def __init__(self, url: str, number: int, seed: int) -> None:
        self.report = ClientReport()
        self._name = f"c{number}"
        self._random = random.Random(f"{seed}/{number}")
        self._count = 0
        self._epoch: int | None = None
        self._next_number = 0
        self._repeats = False
        # Half of the clients send what the client library sends by default.
        encoding = "identity" if number % 2 else "gzip"
        self._client = YtClient(
            proxy=url,
            config={
                "token": "",
                "enable_token": False,
                "proxy": {
                    "enable_proxy_discovery": False,
                    "retries": {"enable": False},
                    "request_timeout": REQUEST_SECONDS * 1000,
                    "heavy_request_timeout": REQUEST_SECONDS * 1000,
                    "content_encoding": encoding,
                },
                "dynamic_table_retries": {"enable": False},
            },
        )
        self._work: list[tuple[Callable[[], None], int]] = [
            (self._append, 4),
            (self._single, 2),
            (self._transfer, 3),
            (self._push, 4),
            (self._consume, 0 if number % _CONSUMER_EVERY else 8),
            (self._read_accounts, 1),
            (self._read_journal, 1),
            (self._read_events, 1),
        ]

    def run(self, until: float) -> ClientReport:
        """Work until a moment of the monotonic clock."""
        work, weights = zip(*self._work, strict=True)
        requests: Counter[str] = Counter()
        failures: Counter[str] = Counter()
        while time.monotonic() < until:
            (chosen,) = self._random.choices(work, weights)
            kind = chosen.__name__.strip("_")
            requests[kind] += 1
            begun = time.monotonic()
            try:
                chosen()
            except Exception as error:  # noqa: BLE001 - faults bring any error; all are counted
                failures[_error_name(error)] += 1
                if "Internal error" in str(error):
                    self.report.broken.append(f"{self._name}: {kind}: {error}")
            taken = time.monotonic() - begun
            self.report.slowest = max(self.report.slowest, taken)
            if taken >= REQUEST_SECONDS:
                self.report.broken.append(f"{self._name}: {kind} took {taken:.0f} s")
        self.report.requests = dict(requests)
        self.report.failures = dict(failures)
        return self.report

    def _start(self, kind: str, rows: int = 0, **detail: Any) -> Write:
        self._count += 1
        return Write(kind, f"{self._name}-{self._count}", FAILED, rows, detail)

    @contextmanager
    def _transaction(self, write: Write) -> Iterator[None]:
        """Run a body in a tablet transaction and commit it; the outcome goes into the record."""
        transaction_id = self._client.start_transaction(type="tablet", timeout=_LEASE_MILLISECONDS)
        try:
            with self._client.Transaction(transaction_id=transaction_id):
                yield
        except BaseException:
            self._abort(transaction_id)
            raise
        self.report.writes.append(write)
        with _outcome(write):
            self._client.commit_transaction(transaction_id)

    def _abort(self, transaction_id: str) -> None:
        # The lease ends it as well, and the first error is the one that counts.
        with suppress(Exception):
            self._client.abort_transaction(transaction_id)

    def _append(self) -> None:
        write = self._start("append", self._random.randint(1, _MAX_ROWS))
        names = [row_name(write.name, part) for part in range(write.rows)]
        with self._transaction(write):
            self._client.insert_rows(stage.JOURNAL, [{"name": name} for name in names])
            rows = [{"name": name, "part": part} for part, name in enumerate(names)]
            self._client.insert_rows(stage.ROWS, rows)

    def _single(self) -> None:
        write = self._start("single", self._random.randint(1, _MAX_ROWS))
        self.report.writes.append(write)
        rows = [{"name": row_name(write.name, part)} for part in range(write.rows)]
        with _outcome(write):
            self._client.insert_rows(stage.JOURNAL, rows)

    def _transfer(self) -> None:
        source, target = self._random.sample(range(stage.ACCOUNT_COUNT), 2)
        amount = self._random.randint(1, 10)
        write = self._start("transfer")
        with self._transaction(write):
            keys = [{"account": source}, {"account": target}]
            giver, taker = self._client.lookup_rows(stage.ACCOUNTS, keys)
            giver["balance"] -= amount
            taker["balance"] += amount
            for account in (giver, taker):
                account["version"] += 1
            self._client.insert_rows(stage.ACCOUNTS, [giver, taker])
            made = {
                "name": write.name,
                "source": source,
                "target": target,
                "amount": amount,
                "source_version": giver["version"],
                "target_version": taker["version"],
            }
            self._client.insert_rows(stage.TRANSFERS, [made])

    def _push(self) -> None:
        if self._epoch is None:
            self._open_session()
            return
        if not self.report.pending:
            count = self._random.randint(1, _MAX_ROWS)
            numbers = range(self._next_number, self._next_number + count)
            self.report.pending = [self._event(number) for number in numbers]
            self._next_number += count
        first = self._next_number - len(self.report.pending)
        rows = [
            {"name": name, "$sequence_number": first + position}
            for position, name in enumerate(self.report.pending)
        ]
        # After a push without an answer the same rows go again: under the old epoch, where the
        # cluster has to skip what it has, or under a new one, which tells what it has.
        epoch, repeated = self._epoch, self._repeats
        self._epoch = epoch if self._random.random() < _KEPT_EPOCHS else None
        self._repeats = True
        answer = self._client.push_queue_producer(
            stage.PRODUCER, stage.EVENTS, self._name, epoch, rows
        )
        skipped = answer["skipped_row_count"]
        wrong = answer["last_sequence_number"] != self._next_number - 1
        if wrong or skipped not in ({0, len(rows)} if repeated else {0}):
            self.report.broken.append(f"{self._name}: a push of {len(rows)} rows got {answer}")
        self._epoch, self._repeats = epoch, False
        self._acknowledge(len(rows))

    def _open_session(self) -> None:
        """Start or fence the session; it tells how many of the pending rows have arrived."""
        session = self._client.create_queue_producer_session(
            stage.PRODUCER, stage.EVENTS, self._name
        )
        self._epoch = session["epoch"]
        first = self._next_number - len(self.report.pending)
        self._acknowledge(max(session["sequence_number"] + 1 - first, 0))

    def _acknowledge(self, count: int) -> None:
        self.report.pushed += self.report.pending[:count]
        self.report.pending = self.report.pending[count:]

    def _event(self, number: int) -> str:
        return f"{self._name}-e{number}"

    def _consume(self) -> None:
        partition = self._random.randrange(stage.PARTITIONS)
        rows = list(
            self._client.pull_queue_consumer(
                stage.CONSUMER, stage.EVENTS, None, partition, max_row_count=_PULLED
            )
        )
        self._check_pulled(partition, rows)
        if not rows:
            return
        start, end = rows[0]["$row_index"], rows[-1]["$row_index"] + 1
        write = self._start("consume", partition=partition, end=end)
        with self._transaction(write):
            output = [
                {"partition": partition, "row": row["$row_index"], "name": row["name"]}
                for row in rows
            ]
            self._client.insert_rows(stage.CONSUMED, output)
            self._client.advance_queue_consumer(
                stage.CONSUMER, stage.EVENTS, partition, start, end, client_side=False
            )

    def _read_accounts(self) -> None:
        """In one transaction the accounts and the list of transfers must agree."""
        transaction_id = self._client.start_transaction(type="tablet", timeout=_LEASE_MILLISECONDS)
        try:
            with self._client.Transaction(transaction_id=transaction_id):
                (sums,) = self._client.select_rows(
                    f"sum(balance) as money, sum(version) as changes from [{stage.ACCOUNTS}] group by 1"
                )
                counted = list(
                    self._client.select_rows(f"sum(1) as made from [{stage.TRANSFERS}] group by 1")
                )
        finally:
            self._abort(transaction_id)
        made = counted[0]["made"] if counted else 0
        if sums != {"money": stage.ACCOUNT_COUNT * stage.BALANCE, "changes": 2 * made}:
            self.report.broken.append(f"{self._name}: {made} transfers, but accounts say {sums}")

    def _read_journal(self) -> None:
        """A write that names no tablet lies in one tablet, whole and in order."""
        tablet = self._random.randrange(stage.PARTITIONS)
        (info,) = self._client.get_tablet_infos(stage.JOURNAL, [tablet])["tablets"]
        start = max(info["total_row_count"] - 200, 0)
        found = self._client.select_rows(
            f"name from [{stage.JOURNAL}] where [$tablet_index] = {tablet}"
            f" and [$row_index] >= {start} order by [$row_index] limit 1000"
        )
        parts = [row["name"].rsplit("/", 1) for row in found]
        for (write, part), (other, next_part) in pairwise(parts):
            torn = next_part != "0" if write != other else int(next_part) != int(part) + 1
            if torn:
                self.report.broken.append(
                    f"{self._name}: journal has {other}/{next_part} after {write}/{part}"
                )

    def _read_events(self) -> None:
        partition = self._random.randrange(stage.PARTITIONS)
        (info,) = self._client.get_tablet_infos(stage.EVENTS, [partition])["tablets"]
        start = self._random.randint(info["trimmed_row_count"], info["total_row_count"])
        rows = list(self._client.pull_queue(stage.EVENTS, start, partition, max_row_count=_PULLED))
        self._check_pulled(partition, rows)

    def _check_pulled(self, partition: int, rows: list[dict[str, Any]]) -> None:
        indexes = [row["$row_index"] for row in rows]
        if indexes and indexes != list(range(indexes[0], indexes[0] + len(indexes))):
            self.report.broken.append(f"{self._name}: a pull skipped rows: {indexes}")
        if rows:
            self.report.seen.append((partition, indexes[-1], rows[-1]["name"]))


@contextmanager
def _outcome(write: Write) -> Iterator[None]:
    """Record what the last request of a write said."""
    write.outcome = UNKNOWN
    try:
        yield
    except (YtResponseError, YtProxyUnavailable):
        # The cluster answered, and every error it answers with means that nothing was done.
        write.outcome = FAILED
        raise
    write.outcome = ACKED


def _error_name(error: Exception) -> str:
    if not isinstance(error, YtError):
        return type(error).__name__
    codes = [
        code for code in (1700, 3100, 3101, 3102, 11000, 105, 901) if error.contains_code(code)
    ]
    return f"{type(error).__name__} {codes[0]}" if codes else type(error).__name__
