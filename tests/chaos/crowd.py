"""A crowd: many plain clients at once on one cluster, with spoiled requests and proxies that die.

`python -m tests.chaos --crowd 200 --minutes 1`. Each client moves money between accounts and pushes events
into a queue, on a thread of its own. It never retries by guess, so that each piece of work is acknowledged,
refused or unknown. In the end that is compared with what the cluster holds.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from yt.common import YtResponseError
from yt.wrapper import YtClient
from yt.wrapper.errors import YtProxyUnavailable

from tests.flows import create_table
from yt_exactly_once.local import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = "//home/crowd"
ACCOUNTS, TRANSFERS, EVENTS, PRODUCER = (
    f"{_ROOT}/{name}" for name in ("accounts", "transfers", "events", "producer")
)

ACCOUNT_COUNT, BALANCE = 32, 1000
_ROWS_AT_MOST = 20
_REQUEST_SECONDS = 40.0
"""A request that takes longer was forgotten: nothing here takes nearly as long."""
_GRACE_SECONDS = 120.0
_SETTLE_SECONDS = 3.0
"""Held requests land after their client has gone; nothing is read before they have."""
_LOOK_SECONDS = 0.2

_FEATURES = {"producer_regress_on_skipped": False}
"""Clients repeat pushes under the epoch they have. Where a push without new rows sets its session back, one
that was held does so when it lands, and rows that are repeated after it would be there twice."""

_COMMIT, _PUSH = "commit_transaction", "push_queue_producer"
_FAULTS: tuple[dict[str, Any], ...] = (
    {"action": "lose_answer", "probability": 0.01},
    {"action": "lose_request", "probability": 0.01},
    {"action": "unavailable", "probability": 0.01},
    {"action": "error", "code": 105, "probability": 0.005},
    {"action": "delay", "seconds": 0.1, "probability": 0.02},
    *({"action": "lose_answer", "command": each, "probability": 0.05} for each in (_COMMIT, _PUSH)),
    *(
        {"action": "hold", "command": each, "probability": 0.03, "seconds": 1.0}
        for each in (_COMMIT, _PUSH)
    ),
    {"action": "expire_transaction", "command": _COMMIT, "probability": 0.02},
    {"action": "error", "command": _COMMIT, "code": 1700, "probability": 0.02},
    *(
        {"action": "kill_proxy", "command": _COMMIT, "when": when, "probability": 0.002}
        for when in ("before", "after")
    ),
)


@dataclass
class Told:
    """What one client was told.

    Attributes:
        made: transfers that were acknowledged.
        refused: transfers that were refused.
        unknown: transfers without an answer.
        pushed: events that were acknowledged.
        pending: events of the last push that was not.
        broken: what it saw itself: a read of two moments, an answer that is wrong or never came.
    """

    made: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    pushed: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


@dataclass
class Held:
    """What the cluster holds in the end.

    Attributes:
        accounts: balance and number of changes, by account.
        transfers: source, target and amount, by name.
        events: names of all events.
    """

    accounts: dict[int, tuple[int, int]]
    transfers: dict[str, tuple[int, int, int]]
    events: list[str]


def run(clients: int, seconds: float, seed: int) -> tuple[list[str], Counter[str]]:
    """Let clients work for a while; return what is wrong, and how much was done.

    Args:
        clients: how many, each on a thread.
        seconds: how long they work.
        seed: of their work and of the faults.
    """
    with LocalCluster(proxies=2, features=_FEATURES) as cluster:
        _build(cluster.client())
        for number, rule in enumerate(_FAULTS):
            cluster.inject(count=None, seed=seed * len(_FAULTS) + number, **rule)
        urls, until = cluster.proxy_urls, time.monotonic() + seconds
        crowd = [Client(urls[number % len(urls)], number, seed) for number in range(clients)]
        threads = [threading.Thread(target=each.work, args=(until,), daemon=True) for each in crowd]
        for thread in threads:
            thread.start()
        while any(map(threading.Thread.is_alive, threads)):
            _revive(cluster)
            if time.monotonic() > until + _GRACE_SECONDS:
                break
            time.sleep(_LOOK_SECONDS)
        numbers = Counter({"faults": sum(rule["hits"] for rule in cluster.faults())})
        cluster.clear_faults()
        _revive(cluster)
        time.sleep(_SETTLE_SECONDS)
        held = _read(cluster.client())
    told = [each.told for each in crowd]
    wrong = judge(told, held)
    wrong += [f"client {n} never came back" for n, one in enumerate(threads) if one.is_alive()]
    for one in told:
        kinds = ("made", "refused", "unknown", "pushed")
        numbers.update({name: len(getattr(one, name)) for name in kinds})
    return wrong, numbers


def judge(told: list[Told], held: Held) -> list[str]:
    """Say how what clients were told differs from what the cluster holds; it knows nothing else."""
    wrong = [broken for one in told for broken in one.broken]
    known: set[str] = set()
    for one in told:
        known |= one.made | one.refused | one.unknown
        wrong += [f"{name}: acknowledged and lost" for name in one.made - held.transfers.keys()]
        wrong += [f"{name}: refused and there" for name in one.refused & held.transfers.keys()]
    wrong += [f"{name}: nobody made it" for name in held.transfers.keys() - known]
    must = dict.fromkeys(range(ACCOUNT_COUNT), (BALANCE, 0))
    for source, target, amount in held.transfers.values():
        for account, more in ((source, -amount), (target, amount)):
            balance, changes = must[account]
            must[account] = (balance + more, changes + 1)
    wrong += [
        f"account {account} is {held.accounts[account]}, its transfers say {right}"
        for account, right in must.items()
        if held.accounts[account] != right
    ]
    found = Counter(held.events)
    pushed = {name for one in told for name in one.pushed}
    pending = {name for one in told for name in one.pending}
    wrong += [f"{name}: pushed, there {found[name]} times" for name in pushed if found[name] != 1]
    wrong += [f"{name}: there {found[name]} times" for name in pending if found[name] > 1]
    wrong += [f"{name}: nobody pushed it" for name in found.keys() - pushed - pending]
    return wrong


class Client:
    """Works on one proxy until a moment.

    Args:
        url: of the proxy; transactions live in one.
        number: distinguishes clients.
        seed: of all.
    """

    def __init__(self, url: str, number: int, seed: int) -> None:
        self.told = Told()
        self._name = f"c{number}"
        self._chance = random.Random(f"{seed}/{number}")
        self._count = self._next = 0
        self._epoch: int | None = None
        self._repeats = False
        # Half of the clients send what the client library sends by default.
        proxy = {
            "enable_proxy_discovery": False,
            "retries": {"enable": False},
            "request_timeout": _REQUEST_SECONDS * 1000,
            "heavy_request_timeout": _REQUEST_SECONDS * 1000,
            "content_encoding": "identity" if number % 2 else "gzip",
        }
        config = {"enable_token": False, "proxy": proxy, "dynamic_table_retries": {"enable": False}}
        self._client: Any = YtClient(proxy=url, config=config)
        self._work = [self._transfer] * 4 + [self._push] * 4 + [self._look]

    def work(self, until: float) -> None:
        """Do one thing after the other."""
        while (began := time.monotonic()) < until:
            act = self._chance.choice(self._work)
            try:
                act()
            except Exception as error:  # noqa: BLE001 - faults bring any error
                if "Internal error" in str(error):
                    self.told.broken.append(f"{self._name}: {error}")
            if time.monotonic() - began > _REQUEST_SECONDS:
                self.told.broken.append(f"{self._name}: an answer came very late")

    @contextmanager
    def _transaction(self) -> Iterator[str]:
        found = self._client.start_transaction(type="tablet", timeout=60_000)
        try:
            with self._client.Transaction(transaction_id=found):
                yield found
        except BaseException:
            # The lease ends it as well.
            with suppress(Exception):
                self._client.abort_transaction(found)
            raise

    def _transfer(self) -> None:
        self._count += 1
        name = f"{self._name}-{self._count}"
        source, target = self._chance.sample(range(ACCOUNT_COUNT), 2)
        amount = self._chance.randint(1, 10)
        with self._transaction() as transaction:
            rows = list(
                self._client.lookup_rows(ACCOUNTS, [{"account": source}, {"account": target}])
            )
            for row, more in zip(rows, (-amount, amount), strict=True):
                row["balance"] += more
                row["changes"] += 1
            self._client.insert_rows(ACCOUNTS, rows)
            made = {"name": name, "source": source, "target": target, "amount": amount}
            self._client.insert_rows(TRANSFERS, [made])
        try:
            self._client.commit_transaction(transaction)
        except (YtResponseError, YtProxyUnavailable):
            # The cluster answered, and each error it answers with means that nothing was done.
            self.told.refused.add(name)
        except Exception:
            self.told.unknown.add(name)
            raise
        else:
            self.told.made.add(name)

    def _push(self) -> None:
        """Push events, or those again whose answer was lost: under the old epoch or under a new one."""
        told = self.told
        if self._epoch is None:
            session = self._client.create_queue_producer_session(PRODUCER, EVENTS, self._name)
            self._epoch = session["epoch"]
            # It says how many of the events have arrived.
            self._acknowledge(session["sequence_number"] + 1 - self._next + len(told.pending))
            return
        if not told.pending:
            last = self._next + self._chance.randint(1, _ROWS_AT_MOST)
            told.pending = [f"{self._name}-e{number}" for number in range(self._next, last)]
            self._next = last
        first = self._next - len(told.pending)
        rows = [
            {"name": name, "$sequence_number": first + place}
            for place, name in enumerate(told.pending)
        ]
        epoch, repeats = self._epoch, self._repeats
        self._epoch = epoch if self._chance.random() < 1 / 2 else None
        self._repeats = True
        said = self._client.push_queue_producer(PRODUCER, EVENTS, self._name, epoch, rows)
        skipped = {0, len(rows)} if repeats else {0}
        if (
            said["last_sequence_number"] != self._next - 1
            or said["skipped_row_count"] not in skipped
        ):
            told.broken.append(f"{self._name}: a push of {len(rows)} rows got {said}")
        self._epoch, self._repeats = epoch, False
        self._acknowledge(len(rows))

    def _acknowledge(self, count: int) -> None:
        told = self.told
        count = max(count, 0)
        told.pushed += told.pending[:count]
        told.pending = told.pending[count:]

    def _look(self) -> None:
        """In one transaction the accounts and the list of transfers must agree."""
        with self._transaction() as transaction:
            (sums,) = self._client.select_rows(
                f"sum(balance) as money, sum(changes) as changes from [{ACCOUNTS}] group by 1"
            )
            made = list(self._client.select_rows(f"sum(1) as n from [{TRANSFERS}] group by 1"))
        self._client.abort_transaction(transaction)
        changes = 2 * made[0]["n"] if made else 0
        if sums != {"money": ACCOUNT_COUNT * BALANCE, "changes": changes}:
            self.told.broken.append(f"{self._name}: {made} transfers, but accounts say {sums}")


def _build(client: Any) -> None:
    name = {"name": "name", "type": "string"}
    key = {"sort_order": "ascending"}

    def numbers(*names: str) -> list[dict[str, Any]]:
        return [{"name": each, "type": "int64"} for each in names]

    account, *values = numbers("account", "balance", "changes")
    create_table(client, ACCOUNTS, [account | key, *values])
    create_table(client, TRANSFERS, [name | key, *numbers("source", "target", "amount")])
    create_table(client, EVENTS, [name], tablet_count=4)
    client.create("queue_producer", PRODUCER)
    rows = [{"account": n, "balance": BALANCE, "changes": 0} for n in range(ACCOUNT_COUNT)]
    client.insert_rows(ACCOUNTS, rows)


def _read(client: Any) -> Held:
    return Held(
        {
            row["account"]: (row["balance"], row["changes"])
            for row in client.select_rows(f"* from [{ACCOUNTS}]")
        },
        {
            row["name"]: (row["source"], row["target"], row["amount"])
            for row in client.select_rows(f"* from [{TRANSFERS}]")
        },
        [row["name"] for row in client.select_rows(f"name from [{EVENTS}]")],
    )


def _revive(cluster: LocalCluster) -> None:
    """Restart proxies that have died, as whoever runs a cluster would."""
    for index in range(len(cluster.proxy_urls)):
        if not cluster.is_alive(index):
            cluster.restart_proxy(index)
