"""Connections to a cluster: one for reading, and pinned ones for tablet transactions.

A `Connection` travels by pickle as its configuration alone and opens clients lazily, per process and
thread, since `YtClient` objects are not thread-safe. Reads go through proxy discovery with the
client's own retries. A tablet transaction lives in the memory of one proxy, so everything that belongs
to it goes through `PinnedProxy`: one concrete address, no discovery, no retries. That holds for both
backends of the client, HTTP and RPC; RPC keeps a transaction in the driver of this process as well, so
that all connections of a transaction share one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, lru_cache, partial
from typing import Any, TypedDict, TypeVar, Unpack

from yt.common import update
from yt.wrapper import YtClient
from yt.wrapper.config import set_option
from yt.wrapper.http_driver import HeavyProxyProvider
from yt.wrapper.http_helpers import make_request_with_retries
from yt.wrapper.native_driver import get_driver_instance

from yt_exactly_once.config import LEASE, ClusterConfig, Secret
from yt_exactly_once.errors import ClusterUnavailableError
from yt_exactly_once.ytsaurus.backends import REQUEST_IDS, RPC_BACKEND, check_backend
from yt_exactly_once.ytsaurus.failures import translated
from yt_exactly_once.ytsaurus.reach import require_proxy
from yt_exactly_once.ytsaurus.sender import Sender
from yt_exactly_once.ytsaurus.transaction import TabletTransaction, TransactionAhead

Row = dict[str, Any]
T = TypeVar("T")

_MAX_THREADS = 1024
"""Most threads of a use; they start on demand. A call that waits for another one must not keep it waiting."""

_READERS = 2
"""Clients for the reads of a transaction that is opened ahead: the ledger's and a consumer's."""

_BACKOFF = {"start_timeout": 100, "base": 2, "max_timeout": 5000, "decay_factor_bound": 0.3}


@dataclass
class PinnedProxy:
    """One concrete proxy, a sender for requests outside transactions, and those of a transaction.

    Attributes:
        model: what its clients are copies of. A new one would read the client's whole configuration again.
        senders: each with an HTTP connection of its own, or all with one RPC driver.
    """

    url: str
    model: YtClient
    senders: list[Sender] = field(default_factory=list)

    def sender(self, number: int) -> Sender:
        """Return a sender, opening those before it too."""
        while len(self.senders) <= number:
            client = deepcopy(self.model)
            if self.senders and client.config["backend"] == RPC_BACKEND:
                set_option("_driver", get_driver_instance(self.senders[0].client), client=client)
            self.senders.append(Sender(client))
        return self.senders[number]

    def of_transaction(self, connections: int) -> list[Sender]:
        """Return the senders of a transaction: all but the first one."""
        return [self.sender(1 + number) for number in range(connections)]


class _RpcProxies(HeavyProxyProvider):  # type: ignore[misc]
    """Chooses among the RPC proxies of the cluster, which an HTTP proxy lists."""

    def _discover_heavy_proxies(self) -> list[str]:
        url = f"{self._get_light_proxy()}/api/v4/discover_proxies?type=rpc"
        return list(make_request_with_retries("get", url, client=self.client).json()["proxies"])


class ClusterArguments(TypedDict, total=False):
    """How a function is told its cluster.

    Attributes:
        proxy: `host:port` or URL of a proxy; default: `YT_PROXY`.
        token: OAuth token; default: `YT_TOKEN`.
        client_config: laid over the configuration of `ytsaurus-client`.
        connection: of this package; used instead of the others.
    """

    proxy: str | None
    token: str | Secret | None
    client_config: Mapping[str, Any] | None
    connection: Connection | None


class Connection:
    """A connection to one cluster; cheap to build, opened on first use.

    Raises:
        ConfigError: the backend is unknown, or its bindings are not installed.
    """

    def __init__(self, config: ClusterConfig) -> None:
        check_backend(config.client_config)
        self.config = config
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the configuration alone; tasks of one worker process share a connection."""
        return _shared_connection, (self.config,)

    @classmethod
    def to(cls, **cluster: Unpack[ClusterArguments]) -> Connection:
        """Return the connection that arguments describe; raise `ConfigError` if nothing names a proxy."""
        config = dict(cluster.get("client_config") or {})
        return cluster.get("connection") or cls(
            ClusterConfig.resolve(cluster.get("proxy"), cluster.get("token"), client_config=config)
        )

    @property
    def reader(self) -> YtClient:
        """The client for everything outside transactions."""
        reader: YtClient = self._state().reader
        return reader

    def require_proxy(self) -> None:
        """Check that a proxy answers at the address, before any retry; see `reach.require_proxy`."""
        require_proxy(self.reader)

    def pinned(self) -> PinnedProxy:
        """Return the proxy for transactions, chosen from `/hosts` once and kept until `unpin`."""
        state = self._state()
        if state.pinned is None:
            with translated("choose a proxy", proxy=self.config.proxy):
                url = state.provider()
            state.pinned = PinnedProxy(url, YtClient(config=self._pinned_config(url)))
        pinned: PinnedProxy = state.pinned
        return pinned

    def unpin(self) -> None:
        """Avoid the current proxy for a while; the next `pinned` picks another one."""
        state = self._state()
        if state.pinned is not None:
            state.provider.state.banned_proxies[state.pinned.url] = datetime.now()  # noqa: DTZ005 - as the client counts
            state.pinned = None

    def renew(self) -> None:
        """Let the next `pinned` open clients anew, which know nothing yet of any table."""
        self._state().pinned = None

    @contextmanager
    def sending(self) -> Iterator[Sender]:
        """Yield a sender of the pinned proxy; choose another proxy when it does not answer."""
        try:
            yield self.pinned().sender(0)
        except ClusterUnavailableError:
            self.unpin()
            raise

    def lookup(self, path: str, keys: Sequence[Row]) -> list[Row | None]:
        """Return the newest committed rows of a sorted dynamic table, in the order of the keys."""
        with self.sending() as sender, translated("read rows", path=path):
            return sender.look_up(path, keys)

    def begin(self, timeout: timedelta, connections: int = 1) -> TabletTransaction:
        """Start a tablet transaction on the pinned proxy.

        Args:
            timeout: lease; the proxy aborts the transaction after this time without a request or ping.
            connections: how many requests may be sent side by side.

        Raises:
            ClusterUnavailableError: no proxy could start it; the next call tries another proxy.
        """
        with self.sending():
            pinned = self.pinned()
            return TabletTransaction.start(
                pinned.of_transaction(connections), threads("send"), timeout, proxy=pinned.url
            )

    @contextmanager
    def transaction(self) -> Iterator[TabletTransaction]:
        """Yield a tablet transaction; commit it at the end, or abort it if something fails."""
        transaction = self.begin(LEASE)
        try:
            yield transaction
        except BaseException:
            transaction.abort()
            raise
        transaction.commit()

    def begin_ahead(
        self, timeout: timedelta, connections: int, reads: Callable[[TabletTransaction], T]
    ) -> TransactionAhead[T]:
        """Start a tablet transaction and read in it, while this thread does something else.

        The thread begins no other transaction until this one has ended. The reads have clients of their own,
        so this thread may write while they are under way.

        Args:
            timeout: see `begin`.
            connections: see `begin`.
            reads: the first calls inside the transaction.

        Raises:
            ClusterUnavailableError: the list of proxies is unavailable.
        """
        pinned = self.pinned()
        senders = pinned.of_transaction(connections + _READERS)
        start = partial(
            TabletTransaction.start, senders, threads("send"), timeout, proxy=pinned.url
        )
        return TransactionAhead(threads("ahead"), start, reads, connections)

    def join_ahead(
        self,
        transaction_id: str,
        connections: int,
        reads: Callable[[TabletTransaction], T],
        *,
        proxy: str,
    ) -> TransactionAhead[T]:
        """Do the same in a transaction that another process has started; `proxy` holds it."""
        pinned = self._joined(proxy)
        senders = pinned.of_transaction(connections + _READERS)
        joined = TabletTransaction(transaction_id, senders, threads("send"), proxy=proxy)
        return TransactionAhead(threads("ahead"), lambda: joined, reads, connections)

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Make a call on a thread that nothing else waits for."""
        return threads("aside").submit(call)

    @property
    def shares_transactions(self) -> bool:
        """Whether another process can write into a transaction of this one: not over RPC."""
        return not self._uses_rpc

    def joined(self, transaction_id: str, *, proxy: str) -> TabletTransaction:
        """Return a transaction that another process has started, and will end; `proxy` holds it."""
        pinned = self._joined(proxy)
        senders = pinned.of_transaction(1)
        return TabletTransaction(transaction_id, senders, threads("send"), proxy=proxy)

    def _joined(self, proxy: str) -> PinnedProxy:
        state = self._state()
        if state.joined is None or state.joined.url != proxy:
            state.joined = PinnedProxy(proxy, YtClient(config=self._pinned_config(proxy)))
        pinned: PinnedProxy = state.joined
        return pinned

    def _state(self) -> Any:
        state = self._local
        if getattr(state, "pid", None) != os.getpid():
            state.pid = os.getpid()
            config = self._reader_config()
            state.reader = YtClient(config=config)
            if self._uses_rpc:
                state.provider = _RpcProxies(YtClient(config={**config, "backend": "http"}))
            else:
                state.provider = HeavyProxyProvider(state.reader)
            state.pinned = state.joined = None
        return state

    @property
    def _uses_rpc(self) -> bool:
        return self.config.client_config.get("backend") == RPC_BACKEND

    def _reader_config(self) -> dict[str, Any]:
        light, heavy = (
            int(limit.total_seconds() * 1000)
            for limit in (self.config.request_timeout, self.config.heavy_request_timeout)
        )
        retries = {
            "enable": True,
            "total_timeout": light,
            "backoff": {"policy": "exponential", "exponential_policy": _BACKOFF},
        }
        config: dict[str, Any] = {
            "proxy": {
                "url": self.config.proxy,
                "request_timeout": light,
                "heavy_request_timeout": heavy,
                "retries": retries,
                # A body that is a generator would be repeated empty by the client's HTTP retries.
                "content_encoding": "identity",
                "accept_encoding": "identity",
            },
            "dynamic_table_retries": retries,
            "token": self.config.token.reveal() if self.config.token else None,
            "enable_token": self.config.token is not None,
            "apply_remote_patch_at_start": None,
            "allow_http_requests_to_yt_from_job": True,
        }
        if self._uses_rpc:
            config[REQUEST_IDS] = False
        return dict(update(config, self.config.client_config))

    def _pinned_config(self, url: str) -> dict[str, Any]:
        pinned: dict[str, Any] = {
            "proxy": {"url": url, "enable_proxy_discovery": False, "retries": {"enable": False}},
            "dynamic_table_retries": {"enable": False},
        }
        if self._uses_rpc:
            pinned["driver_config"] = {"connection_type": "rpc", "proxy_addresses": [url]}
        return dict(update(self._reader_config(), pinned))


@lru_cache(maxsize=8)
def _shared_connection(config: ClusterConfig) -> Connection:
    return Connection(config)


def threads(use: str) -> ThreadPoolExecutor:
    """Return the threads of this process for a use.

    Those are `send` for requests side by side, `ahead` for a transaction that is used while the caller does
    something else, and `aside` for calls that nobody waits for. All connections share them: Spark keeps the
    sink of a query that has ended, and glibc keeps for each thread what it has freed.
    """
    return _threads_of(use, os.getpid())


@cache
def _threads_of(use: str, _process: int) -> ThreadPoolExecutor:
    # A process that was forked has none of the threads.
    return ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix=f"yt-{use}")
