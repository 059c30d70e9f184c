"""Options that commands share: the cluster, and the form of the output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from yt_exactly_once.config import BACKEND, ClusterConfig, DeliveryMode

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection

BACKENDS = list(BACKEND.values)


@dataclass(frozen=True)
class ClusterOptions:
    """The cluster that a command talks to."""

    proxy: str | None
    backend: str

    @property
    def client_config(self) -> dict[str, Any]:
        """What is laid over the configuration of `ytsaurus-client`."""
        return {"backend": self.backend}

    def config(self) -> ClusterConfig:
        """Return the configuration of the connection; the token comes from `YT_TOKEN`.

        Raises:
            ConfigError: no proxy is known.
        """
        return ClusterConfig.resolve(self.proxy, client_config=self.client_config)

    def connect(self) -> Connection:
        """Return a connection to a proxy that answers.

        Raises:
            ConfigError: no proxy is known, the address leads to none, or it refuses the token; or the
                packages of the backend are not installed.
            ClusterUnavailableError: nothing answers now.
        """
        from yt_exactly_once.ytsaurus.client import Connection  # noqa: PLC0415 - the client is slow

        connection = Connection(self.config())
        # The first request would say less about a wrong address.
        connection.require_proxy()
        return connection


proxy_option = click.option(
    "--proxy",
    metavar="HOST:PORT",
    envvar="YT_PROXY",
    show_envvar=True,
    help="Address of a proxy. The token comes from YT_TOKEN.",
)
"""Add `--proxy` alone, for a command with a say of its own about backends."""

query_option = click.option(
    "--query", metavar="ID", help="Only this query; the first characters are enough."
)


def mode_option(meaning: str) -> Callable[[Any], Any]:
    """Add `--mode`, the delivery mode of a sink."""
    modes = click.Choice([mode.value for mode in DeliveryMode])
    usual = DeliveryMode.TRANSACTIONAL.value
    return click.option("--mode", type=modes, default=usual, help=meaning)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--proxy` and `--backend`; the command gets them as `cluster`, a `ClusterOptions`.

    There is no option for the token: other users of the machine can read the arguments of a process.
    """

    @proxy_option
    @click.option(
        "--backend",
        type=click.Choice(BACKENDS),
        default="http",
        help=f"{BACKEND.meaning} For rpc install the package ytsaurus-rpc-driver.",
    )
    @wraps(command)
    def with_cluster(*args: Any, proxy: str | None, backend: str, **options: Any) -> Any:
        return command(*args, cluster=ClusterOptions(proxy, backend), **options)

    return with_cluster


def accepting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--accept-repeated` and `--accept-lost`, by which a person accepts rows that are at stake."""
    repeated = click.option(
        "--accept-repeated",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Do it although N rows may get into a target twice; N is the number that the plan names.",
    )
    lost = click.option(
        "--accept-lost",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Do it although N rows never get into a target; N is the number that the plan names.",
    )
    return repeated(lost(command))


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of text for people."
)
"""Add `--json`; the command gets it as `as_json`."""
