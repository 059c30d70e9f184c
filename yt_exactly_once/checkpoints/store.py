"""What users hold: a gateway that runs, and the locations of checkpoints on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from yt_exactly_once import advice
from yt_exactly_once.checkpoints.folders import ServedFolders, check_secret, new_secret, parse_path
from yt_exactly_once.checkpoints.webhdfs import WebHdfs
from yt_exactly_once.config import ClusterConfig, RetryPolicy, Secret
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.observability import Listener, emitter
from yt_exactly_once.spark.compat.jvm import hadoop_of, jvm_of
from yt_exactly_once.spark.storage import CYPRESS_SCHEME, SCHEME, WebHdfsFolder
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.files import CypressFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOOPBACK = "127.0.0.1"
_ANY = ("", "0.0.0.0", "::")  # noqa: S104 - addresses to refuse

_OPTION = "path of a checkpoint"
_IMPATIENT = RetryPolicy(attempts=3, deadline=timedelta(seconds=5))

HADOOP_SETTINGS = {
    "dfs.http.client.retry.policy.enabled": "true",
    # Sleep in milliseconds, number of times, ...: for about a minute.
    "dfs.http.client.retry.policy.spec": "500,10,2000,30",
}
"""With these, Spark's client waits while a gateway restarts, and does not fail the query at once."""

_FILE_SYSTEM_OF_YT = f"fs.{CYPRESS_SCHEME}.impl"
_VIEW = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
_MOUNT_TABLE = "fs.viewfs.mounttable.default"


class Checkpoints:
    """A gateway, with the `address` under which Spark reaches it: `host:port`."""

    def __init__(self, address: str, locate: Callable[[str], str]) -> None:
        self.address = address
        self._locate = locate

    def url(self, path: str) -> str:
        """Return the `checkpointLocation` of a checkpoint at a Cypress path. It contains the secret.

        Args:
            path: a folder of the query's own; Spark creates it, with everything above it.

        Raises:
            ConfigError: the path is not absolute, has names that Hadoop or YPath reads differently, or is
                outside the roots of a gateway in this process.
            AccessError: the secret is wrong, or the path is outside the roots of a gateway elsewhere.
            RetriesExhaustedError: the gateway elsewhere, or the cluster behind it, does not answer.
        """
        return self._locate(path)

    def configure(self, spark: SparkSession, *roots: str) -> None:
        """Let the jobs of a session reach checkpoints below some folders as `yt:///…`.

        The secret of the gateway then stays in the JVMs of Spark. It is in no command line, plan, log or
        page of the UI, unlike in a location that `url` returns. Spark's client waits while the gateway
        restarts.

        Args:
            spark: a session that runs, before its queries start.
            *roots: folders in Cypress for checkpoints.

        Raises:
            ConfigError: the session has no JVM in this process.
            ExactlyOnceError: see `url`, which is asked for each root.
        """
        hadoop = hadoop_of(spark)
        if hadoop is None:
            raise ConfigError(
                f"The settings of Hadoop cannot be set through {type(spark).__name__}",
                remedy="Pass the session that getOrCreate() returned, in the process of the driver. With "
                "Spark Connect, do so in the server",
            )
        # By these, Hadoop takes `yt:///…` to the gateway.
        settings = {f"{_MOUNT_TABLE}.link./{root[2:]}": self.url(root) for root in roots}
        settings |= HADOOP_SETTINGS | ({_FILE_SYSTEM_OF_YT: _VIEW} if roots else {})
        # Settings of Spark are words of a command line, and are shown in its UI and its event log. These
        # reach the executors with Spark's jobs, and nobody else.
        is_known = hadoop.get(_FILE_SYSTEM_OF_YT) is not None
        is_other = any(hadoop.get(name) != value for name, value in settings.items())
        for name, value in settings.items():
            hadoop.set(name, value)
        if is_known and is_other:
            jvm: Any = jvm_of(spark)
            # Hadoop keeps a file system with the settings that it was made with.
            location = jvm.java.net.URI(f"{CYPRESS_SCHEME}:///")
            jvm.org.apache.hadoop.fs.FileSystem.get(location, hadoop).close()

    def __repr__(self) -> str:
        """Show no secret."""
        return f"{type(self).__name__}({self.address!r})"


def gateway_at(location: str) -> Checkpoints:
    """Return the gateway that another process runs by `yt-exactly-once checkpoints`.

    Args:
        location: any location that the command printed.

    Raises:
        ConfigError: it is no such location.
    """
    split = urlsplit(location)
    if split.scheme != SCHEME or not split.netloc or not split.path.strip("/"):
        raise ConfigError(
            "This is no location of a gateway for checkpoints", remedy=advice.GATEWAY_LOCATION
        )
    base = f"{SCHEME}://{split.netloc}/{split.path.split('/')[1]}"

    def locate(path: str) -> str:
        found = "/".join((base, *parse_path(path, _OPTION)))
        # Here an error has its name and remedy, and not deep inside Spark.
        WebHdfsFolder(found, _IMPATIENT).names("offsets")
        return found

    return Checkpoints(split.netloc, locate)


@contextmanager
def checkpoints(
    *,
    proxy: str | None = None,
    token: str | Secret | None = None,
    host: str = LOOPBACK,
    port: int = 0,
    address: str | None = None,
    secret: str | Secret | None = None,
    roots: Sequence[str] = (),
    listener: Listener | None = None,
    **cluster: Any,
) -> Iterator[Checkpoints]:
    """Run a gateway in this process, so that checkpoints can lie on YTsaurus.

    A file becomes visible as a whole, and a file that Spark does not replace is never replaced: of two
    drivers with one checkpoint, one fails. The gateway must run as long as the queries do.

    Args:
        proxy: address of the cluster; `YT_PROXY` by default.
        token: `YT_TOKEN` by default.
        host: address of this machine to listen on. The default is reached from this machine only.
        port: port to listen on; 0 takes any.
        address: `host[:port]` under which Spark's driver and executors reach the gateway, when it is not
            `host`.
        secret: first segment of every path that the gateway answers; random by default. Give one if the
            locations must stay the same after a restart.
        roots: folders in Cypress that are served. By default those that `url` was asked for.
        listener: gets every event; see `yt_exactly_once.Event`.
        **cluster: further options of `ClusterConfig`.

    Raises:
        ConfigError: no proxy is known, an option is wrong, or the address is taken.
        AccessError: the cluster refuses the token.
        RetriesExhaustedError: the cluster does not answer.
    """
    try:
        from yt_exactly_once.checkpoints.server import serving  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The gateway for checkpoints needs a package that is not installed: {error.name}",
            remedy="Install the package with its extra 'checkpoints'",
        ) from error
    given = Secret(secret) if isinstance(secret, str) else secret
    served = ServedFolders(
        check_secret(given) if given else new_secret(),
        [parse_path(root, "root of the gateway") for root in roots],
    )
    if address is None and host in _ANY:
        raise ConfigError(
            f"The gateway listens on {host or 'all addresses'}, which is no address to connect to",
            remedy="Pass the address of this machine as executors know it: address=, or --address",
        )
    config = ClusterConfig.resolve(proxy, token, **cluster)
    files = CypressFiles(Connection(config), emitter(listener, component="checkpoints"))
    # A wrong address or token is to fail here, and not deep inside Spark.
    files.describe(())
    with serving(WebHdfs(files, served), host, port) as taken_port:
        reached = address or host
        reached = reached if ":" in reached else f"{reached}:{taken_port}"

        def locate(path: str) -> str:
            segments = parse_path(path, _OPTION)
            if not roots:
                served.serve(segments)
            elif served.root_of(segments) is None:
                raise ConfigError(
                    "The path is outside the roots of the gateway",
                    remedy="Choose a path below a root, or add a root",
                    path=path,
                )
            return f"{SCHEME}://{reached}{served.url_path(segments)}"

        yield Checkpoints(reached, locate)
