"""How commands declare options, and those that they share: the cluster, and the form of the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from yt_exactly_once.cli.output import print_json
from yt_exactly_once.config import BACKEND, Changes, ClusterConfig, DeliveryMode
from yt_exactly_once.operations.view import console

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection

Decorator = Callable[[Any], Any]

BACKENDS = list(BACKEND.values)


def option(names: str, meaning: str, **more: Any) -> Decorator:
    """Add an option; `names` are the flag, the argument if it has another name, and what its value is."""
    *flags, metavar = names.split()
    return click.option(*flags, metavar=metavar, help=meaning, **more)


def several(names: str, meaning: str, **more: Any) -> Decorator:
    """Add an option that may be repeated, see `option`."""
    return option(names, f"{meaning}; may be repeated.", multiple=True, **more)


def number(names: str, meaning: str, least: float, **more: Any) -> Decorator:
    """Add an option with a number that is not less: a whole one, or a float if its default is one."""
    kind: Any = click.FloatRange if isinstance(more.get("default"), float) else click.IntRange
    return option(names, meaning, type=kind(min=least), **more)


def file_option(names: str, meaning: str, **more: Any) -> Decorator:
    """Add an option with a path on this machine, see `option`."""
    return option(names, meaning, type=click.Path(path_type=Path), **more)


def flag(names: str, meaning: str) -> Decorator:
    """Add an option without a value, see `option`."""
    return click.option(*names.split(), is_flag=True, help=meaning)


@dataclass(frozen=True)
class ClusterOptions:
    """The cluster that a command talks to, and the form of its answer."""

    proxy: str | None
    backend: str
    as_json: bool

    def config(self) -> ClusterConfig:
        """Return the configuration of the connection; the token comes from `YT_TOKEN`."""
        return ClusterConfig.resolve(self.proxy, client_config={"backend": self.backend})

    @cached_property
    def connection(self) -> Connection:
        """A connection to a proxy that answers; `ExactlyOnceError` if none does."""
        from yt_exactly_once.ytsaurus.client import Connection  # noqa: PLC0415 - the client is slow

        connection = Connection(self.config())
        # The first request would say less about a wrong address.
        connection.require_proxy()
        return connection

    def say(self, *texts: Any) -> None:
        """Print lines and tables for people; nothing with `--json`."""
        if not self.as_json:
            screen = console()
            for text in texts:
                screen.print(text, soft_wrap=True)

    def answer(self, value: Any, *texts: Any) -> None:
        """Print a value as JSON, or lines and tables for people."""
        self.say(*texts)
        if self.as_json:
            print_json(value)


proxy_option = option(
    "--proxy HOST:PORT",
    "Address of a proxy. The token comes from YT_TOKEN.",
    envvar="YT_PROXY",
    show_envvar=True,
)
"""Add `--proxy` alone, for a command with a say of its own about backends."""

query_option = option("--query ID", "Only this query: its name, or the first characters of its id.")

json_option = flag("--json as_json", "Print JSON instead of text for people.")
"""Add `--json`; the command gets it as `as_json`."""


def mode_option(meaning: str) -> Decorator:
    """Add `--mode`, the delivery mode of a sink."""
    modes = click.Choice([mode.value for mode in DeliveryMode])
    usual = DeliveryMode.TRANSACTIONAL.value
    return click.option("--mode", type=modes, default=usual, help=meaning)


def changes_options(command: Callable[..., Any]) -> Any:
    """Add `--changes-sequence` and `--changes-operation`, which the command gets as `changes`."""

    @several(
        "--changes-sequence COLUMN", "Column that orders the changes of a key, if rows are changes"
    )
    @option("--changes-operation COLUMN", "Column that says what a change does; no table has it.")
    @wraps(command)
    def with_changes(
        changes_sequence: tuple[str, ...], changes_operation: str | None, **options: Any
    ) -> Any:
        if changes_operation is not None and not changes_sequence:
            raise click.UsageError("--changes-operation needs --changes-sequence")
        changes = None
        if changes_sequence:
            changes = Changes(sequence=changes_sequence, operation=changes_operation)
        return command(changes=changes, **options)

    return with_changes


def backend_option(meaning: str) -> Decorator:
    """Add `--backend`, the protocol to the cluster."""
    return click.option("--backend", type=click.Choice(BACKENDS), default="http", help=meaning)


def cluster_options(command: Callable[..., Any]) -> Any:
    """Add `--proxy`, `--backend` and `--json`, which the command gets as `cluster`, a `ClusterOptions`.

    There is no option for the token: other users of the machine can read the arguments of a process.
    """

    @proxy_option
    @backend_option(f"{BACKEND.meaning} For rpc install the package ytsaurus-rpc-driver.")
    @json_option
    @wraps(command)
    def with_cluster(proxy: str | None, backend: str, as_json: bool, **options: Any) -> Any:
        return command(cluster=ClusterOptions(proxy, backend, as_json), **options)

    return with_cluster


def accepting(command: Any) -> Any:
    """Add `--accept-repeated` and `--accept-lost`, by which a person accepts rows that are at stake."""
    for name, what in (
        ("lost", "never get into a target"),
        ("repeated", "may get into a target twice"),
    ):
        meaning = f"Do it although N rows {what}; N is the number that the plan names."
        command = number(f"--accept-{name} N", meaning, 0, default=0)(command)
    return command
