"""`LocalCluster`: starts the proxy processes of an embedded cluster, and ends them.

It owns processes and the data directory. What the cluster does happens in the proxies; this module
talks to them over HTTP only.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from yt_exactly_once.local import features as feature_table
from yt_exactly_once.local.proxy_process import (
    HOST,
    START_SECONDS,
    LocalClusterError,
    ProxyProcess,
    open_private,
)


class LocalCluster:
    """An embedded YTsaurus cluster for tests, demos and benchmarks.

    Use it as a context manager, or call `start` and `stop`. Its processes end with this one, however
    this one ends.

    Args:
        data_dir: where the cluster keeps its data; `None` is a temporary directory that `stop` removes.
        proxies: number of proxy processes, each with sticky transactions of its own.
        port: HTTP port of the first proxy, the next ones count up; 0 lets the system choose.
        rpc_port: RPC port of the first proxy, likewise.
        token: the only token that is let in; `None` lets everybody in.
        features: behaviours that differ between versions of YTsaurus, by name; see
            `yt_exactly_once.local.features.FEATURES`.
        trim_every: seconds between two steps of the queue agent; `None` leaves them to `trim_queues`.

    Raises:
        LocalClusterError: an impossible argument.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        proxies: int = 1,
        *,
        port: int = 0,
        rpc_port: int = 0,
        token: str | None = None,
        features: dict[str, Any] | None = None,
        trim_every: float | None = None,
    ) -> None:
        if proxies < 1:
            raise LocalClusterError(f"A cluster needs at least one proxy, not {proxies}")
        if trim_every is not None and trim_every <= 0:
            raise LocalClusterError(f"Queues cannot be trimmed every {trim_every} seconds")
        self.token = token
        self._given_dir = None if data_dir is None else Path(data_dir)
        self._count = proxies
        self._port = port
        self._rpc_port = rpc_port
        try:
            self._features = feature_table.check(features or {})
        except ValueError as error:
            raise LocalClusterError(str(error)) from error
        self._trim_every = trim_every
        self._data_dir: Path | None = None
        self._guard: IO[str] | None = None
        self._proxies: list[ProxyProcess] = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def data_dir(self) -> Path:
        """Where the cluster keeps its data."""
        if self._data_dir is None:
            raise LocalClusterError("The cluster is not running; call start first")
        return self._data_dir

    @property
    def proxy_urls(self) -> list[str]:
        """URLs of the proxies, the killed ones included."""
        return [proxy.url for proxy in self._proxies]

    @property
    def rpc_addresses(self) -> list[str]:
        """Addresses `host:port` of the proxies for RPC clients, the killed ones included."""
        return [f"{HOST}:{proxy.rpc_port}" for proxy in self._proxies]

    @property
    def proxy_pids(self) -> list[int]:
        """Process ids of the proxies."""
        return [proxy.pid for proxy in self._proxies]

    def start(self) -> Self:
        """Start the proxies and wait until they serve.

        Raises:
            LocalClusterError: a package is missing, the directory cannot be used, a port is taken, or
                a proxy does not come up.
        """
        if self._data_dir is not None:
            raise LocalClusterError("The cluster is running already")
        self._data_dir = _prepare_dir(self._given_dir)
        try:
            self._guard = _guard_dir(self._data_dir)
            # Addresses of earlier runs.
            shutil.rmtree(self._data_dir / "proxies", ignore_errors=True)
            for number in range(self._count):
                ports = [port + number if port else 0 for port in (self._port, self._rpc_port)]
                self._proxies.append(self._launch(number, *ports))
                # The first one creates the store; the others then start side by side.
                if number == 0:
                    self._proxies[0].wait_ready()
            for proxy in self._proxies[1:]:
                proxy.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the proxies; a temporary directory goes too. Harmless when not running."""
        for proxy in self._proxies:
            proxy.ask_to_stop()
        for proxy in self._proxies:
            proxy.wait_stopped()
        self._proxies.clear()
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        if self._data_dir is not None and self._given_dir is None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
        self._data_dir = None

    def is_alive(self, index: int = 0) -> bool:
        """Tell whether a proxy process runs."""
        return self._proxy(index).is_alive()

    def kill_proxy(self, index: int = 0) -> None:
        """Kill a proxy with SIGKILL: its sticky transactions are gone, nothing committed is."""
        self._proxy(index).kill()

    def restart_proxy(self, index: int = 0) -> None:
        """Restart a dead or living proxy on the same ports."""
        old = self._proxy(index)
        old.ask_to_stop()
        old.wait_stopped()
        self._proxies[index] = self._launch(index, old.port, old.rpc_port)
        self._proxies[index].wait_ready()

    def client(self, proxy_index: int = 0, **config: Any) -> Any:
        """Return a `yt.wrapper.YtClient` of one proxy, with retries fast enough for tests.

        Args:
            proxy_index: which proxy it talks to first; heavy commands go to any, as ever.
            **config: overrides of the client's configuration; `token` among them.
        """
        # Slow to import, and only needed here.
        from yt.common import update  # noqa: PLC0415
        from yt.wrapper import YtClient  # noqa: PLC0415

        retries = {
            "enable": True,
            "count": 6,
            "backoff": {"policy": "constant_time", "constant_time": 50},
        }
        defaults: dict[str, Any] = {
            "proxy": {"retries": {**retries}},
            "dynamic_table_retries": {**retries, "total_timeout": None},
            "batch_requests_retries": {**retries},
            # The driver for RPC takes numbers, and the client has ids in four groups.
            "enable_passing_request_id_to_driver": False,
            # An empty token keeps the client from reading the one of the user.
            "token": self.token or "",
            "enable_token": self.token is not None,
        }
        token = config.pop("token", None)
        if token is not None:
            defaults.update(token=token, enable_token=True)
        url = self._proxy(proxy_index).url
        return YtClient(proxy=url, config=update(defaults, config))

    def inject(self, action: str, command: str = "*", **attributes: Any) -> None:
        """Add a fault rule that holds for every proxy.

        Args:
            action: what happens, see `yt_exactly_once.local.faults.ACTIONS`.
            command: to which command.
            **attributes: `count`, `after`, `probability`, `seed`, `match`, `writes_to`, `proxy`,
                `seconds`, `code`, `message`, `when`; see `yt_exactly_once.local.faults.Fault`.

        Raises:
            LocalClusterError: an unknown action or attribute, or a value that no request could meet.
        """
        self.inject_plan([{"action": action, "command": command, **attributes}])

    def inject_plan(self, plan: Sequence[Mapping[str, Any]]) -> None:
        """Add fault rules, given as maps; what `fault_plan` returned makes the same faults again.

        Raises:
            LocalClusterError: as `inject`; then no rule is added.
        """
        self._admin("POST", "/local/faults", list(plan))

    def clear_faults(self) -> None:
        """Forget every fault rule, and the plan of what they have done."""
        self._admin("DELETE", "/local/faults")

    def faults(self) -> list[dict[str, Any]]:
        """Return the fault rules, each with how many requests it has `seen` and `hits` among them."""
        listed: list[dict[str, Any]] = self._admin("GET", "/local/faults")
        return listed

    def request_counts(self) -> Counter[str]:
        """Return how many requests of each path the living proxies have met since they started.

        Everything counts: commands, look-ups of proxies, requests that failed. The difference of two
        calls tells what a piece of work costs in round trips.
        """
        counts: Counter[str] = Counter()
        for proxy in self._proxies:
            if proxy.is_alive():
                counts.update(self._ask(proxy, "GET", "/local/requests"))
        return counts

    def fault_plan(self) -> list[dict[str, Any]]:
        """Return what was injected, at which request, as rules that do exactly that again."""
        plan: list[dict[str, Any]] = self._admin("GET", "/local/faults/plan")
        return plan

    def trim_queues(self) -> dict[str, dict[int, int]]:
        """Take the step of the queue agent: drop the rows that every vital consumer has read.

        Only queues with `auto_trim_config/enable` and a vital consumer are trimmed.

        Returns:
            Per queue, the first row that is left in each partition that was trimmed.

        Raises:
            LocalClusterError: a queue with registrations is gone or is no queue; the others are trimmed.
        """
        done: list[dict[str, Any]] = self._admin("POST", "/local/trim")
        failed = [
            f"{item['queue']}: {item['error']['message']}" for item in done if "error" in item
        ]
        if failed:
            raise LocalClusterError(f"Not every queue could be trimmed: {'; '.join(failed)}")
        return {
            item["queue"]: {int(partition): row for partition, row in item["trimmed"].items()}
            for item in done
        }

    def _admin(self, method: str, path: str, body: Any = None) -> Any:
        alive = next((proxy for proxy in self._proxies if proxy.is_alive()), None)
        if alive is None:
            raise LocalClusterError("No proxy of the cluster is alive; call restart_proxy first")
        return self._ask(alive, method, path, body)

    def _ask(self, proxy: ProxyProcess, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection(HOST, proxy.port, timeout=START_SECONDS)
        headers = {"Authorization": f"OAuth {self.token}"} if self.token else {}
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
            content = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise LocalClusterError(content["message"])
        return content

    def _proxy(self, index: int) -> ProxyProcess:
        if not self._proxies:
            raise LocalClusterError("The cluster is not running; call start first")
        if not 0 <= index < len(self._proxies):
            raise LocalClusterError(
                f"There is no proxy {index}; the cluster has {len(self._proxies)}"
            )
        return self._proxies[index]

    def _launch(self, number: int, port: int, rpc_port: int) -> ProxyProcess:
        options = ["--features", json.dumps(self._features)]
        # One agent is enough, and the first proxy is there in every cluster.
        if self._trim_every is not None and number == 0:
            options += ["--trim-every", str(self._trim_every)]
        return ProxyProcess(self.data_dir, number, port, rpc_port, self.token, options)


def _prepare_dir(given: Path | None) -> Path:
    if given is None:
        return Path(tempfile.mkdtemp(prefix="yt-local-"))
    try:
        # Rows and the plan of faults are the user's own. A folder that was there keeps its rights.
        given.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=given):
            pass
    except OSError as error:
        raise LocalClusterError(
            f"Data directory {given} is not writable ({error.strerror}); choose another one"
        ) from error
    return given.resolve()


def _guard_dir(data_dir: Path) -> IO[str]:
    guard = open_private(data_dir / "cluster.lock", "w")
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        guard.close()
        raise LocalClusterError(
            f"Data directory {data_dir} is used by another cluster; stop it or choose another one"
        ) from error
    return guard
