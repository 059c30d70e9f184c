"""One proxy of the cluster: what its commands share inside a process.

It joins the store, the tree, the sticky transactions and the fault rules, and knows which other
proxies are alive. It never handles a request itself.
"""

from __future__ import annotations

import fcntl
import random
from collections import Counter
from pathlib import Path
from typing import IO, Any

from yt_exactly_once.local import table_nodes
from yt_exactly_once.local.cypress import clock, dynamic, master_transactions, seeds
from yt_exactly_once.local.cypress.ids import is_id
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.faults import Faults
from yt_exactly_once.local.features import FEATURES
from yt_exactly_once.local.store import Store
from yt_exactly_once.local.tablets import commit
from yt_exactly_once.local.tablets.transactions import TransactionPool


class Proxy:
    """State of one proxy process.

    Args:
        data_dir: directory of the cluster; the store file is in it.
        address: `host:port` that HTTP clients reach this proxy at.
        token: the only token that is let in; `None` lets everybody in as `root`.
        features: behaviours that differ between versions of YTsaurus, by name; see `features`. Others are as
            by default.

    Attributes:
        store: the durable state, shared with the other proxies.
        accesses: counts who reads its nodes.
        transactions: sticky tablet transactions; they die with this process.
        faults: rules that make commands fail.
        requests: how many requests of each path have come.
    """

    def __init__(
        self,
        data_dir: Path,
        address: str,
        token: str | None = None,
        features: dict[str, Any] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.address = address
        self.rpc_address = ""
        self.token = token
        self.features = {each.name: each.default for each in FEATURES.values()} | (features or {})
        self.store = Store(data_dir / "store.sqlite3")
        dynamic.register(table_nodes)
        with self.store.write() as connection:
            seeds.plant(connection, table_nodes.create_system_tables)
        self.accesses = clock.Accesses(self.store)
        manner = commit.Manner(
            random.Random(self.features["random_tablet_seed"]),  # noqa: S311 - no secret
            self.features["visibility_delay_seconds"],
            self.features["max_transaction_duration_seconds"],
        )
        self.transactions = TransactionPool(
            self.store, manner, max_timeout=self.features["max_transaction_timeout_seconds"]
        )
        self.faults = Faults(self.store, address, self.transactions.written)
        self.requests: Counter[str] = Counter()
        self._beacon: IO[str] | None = None

    def announce(self, rpc_address: str = "") -> None:
        """Tell the other proxies that this one serves, and where over RPC, until the process ends."""
        self.rpc_address = rpc_address
        beacons = self.data_dir / "proxies"
        beacons.mkdir(exist_ok=True)
        beacon = (beacons / self.address).open("w")
        beacon.write(rpc_address)
        beacon.flush()
        # The kernel drops the lock with the process, however it ends. Only a look from another proxy
        # can hold it now, for a moment.
        fcntl.flock(beacon, fcntl.LOCK_EX)
        self._beacon = beacon

    def live_proxies(self) -> list[str]:
        """Return the HTTP addresses of the proxies that serve now, this one first."""
        return [self.address, *(path.name for path in self._others())]

    def live_rpc_proxies(self) -> list[str]:
        """Return the RPC addresses of the proxies that serve now, this one first."""
        addresses = [self.rpc_address, *(path.read_text() for path in self._others())]
        return [address for address in addresses if address]

    def _others(self) -> list[Path]:
        """Return the beacons of the other live proxies."""
        return [
            path
            for path in sorted((self.data_dir / "proxies").glob("*"))
            if path.name != self.address and _is_held(path)
        ]

    def expire_transaction(self, transaction_id: str) -> None:
        """End a transaction of any type as if its lease had run out; unknown ones are ignored."""
        if not is_id(transaction_id):
            return
        try:
            if master_transactions.is_master(transaction_id):
                with self.store.write() as connection:
                    master_transactions.abort(connection, transaction_id)
            else:
                self.transactions.abort(transaction_id.lower())
        except YtError as error:
            if not error.contains(Code.NO_SUCH_TRANSACTION):
                raise

    def close(self) -> None:
        """Abort the sticky transactions and take the beacon down."""
        self.transactions.close()
        if self._beacon is not None:
            self._beacon.close()


def _is_held(path: Path) -> bool:
    with path.open() as beacon:
        try:
            fcntl.flock(beacon, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
