"""`checkpoints` and `local`: servers in the foreground, and the files with their secrets.

A command line is shown to every user of the machine, so a secret is kept in a file.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from yt_exactly_once.cli.options import file_option, option, proxy_option, several
from yt_exactly_once.cli.output import require_extra, require_folder
from yt_exactly_once.errors import ConfigError

TOKEN_VARIABLE = "YT_LOCAL_TOKEN"  # noqa: S105 - the name of a variable

_STOPPING = {signal.SIGINT, signal.SIGTERM}
_SECRET_BYTES = 16

_FAULT_NAMES = (
    "command, count (1; null means no limit), after, probability, seed, seconds, code, message, when, "
    "proxy, match.PARAMETER"
)


def _kept_secret(file: Path, option: str) -> str:
    """Return the secret in a file, created if missing; raise `ConfigError` if it cannot serve."""
    try:
        with suppress(FileExistsError):
            file.touch(0o600, exist_ok=False)
            file.write_text(secrets.token_urlsafe(_SECRET_BYTES) + "\n")
        rights, secret = file.stat().st_mode, file.read_text().strip()
    except OSError as error:
        raise ConfigError(
            f"The file with the secret cannot be used: {error.strerror}",
            remedy=f"Pass another path to {option}",
            path=file,
        ) from error
    if rights & 0o077:
        raise ConfigError(
            "Other users of the machine can read the file with the secret",
            remedy=f"Run: chmod 600 {file}",
            path=file,
        )
    if not secret:
        raise ConfigError(
            "The file with the secret is empty",
            remedy=f"Remove it, and {option} creates another one",
            path=file,
        )
    return secret


@click.command("checkpoints")
@several(
    "--root roots PATH", "Folder in Cypress that is served, with everything below", required=True
)
@option("--host A", "Address of this machine to listen on; 0.0.0.0 means all.", default="127.0.0.1")
@option("--port P", "Port; 0 takes any.", default=9870)
@option(
    "--address HOST[:PORT]",
    "Under which Spark's driver and executors reach the gateway.  [default: --host]",
)
@file_option(
    "--secret-file FILE",
    "Where the secret is kept. A missing file is created, so the locations survive a restart.  "
    "[default: a new secret with each start]",
)
@proxy_option
def checkpoints(roots: tuple[str, ...], secret_file: Path | None, **address: Any) -> None:
    """Let Spark keep checkpoints on YTsaurus, until Ctrl-C.

    Prints one location per root. It contains the secret: who knows it can read and change the checkpoints.
    """
    require_extra("checkpoints")
    from yt_exactly_once.checkpoints import checkpoints as open_checkpoints  # noqa: PLC0415 - needs the extra

    secret = None if secret_file is None else _kept_secret(secret_file, "--secret-file")
    # All threads inherit the mask, so no other thread takes the signal that this one waits for.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        with open_checkpoints(secret=secret, roots=roots, **address) as store:
            for root in roots:
                click.echo(f"{root} {store.url(root)}")
            signal.sigwait(_STOPPING)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _list_features(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from yt_exactly_once.local.features import FEATURES  # noqa: PLC0415 - only for this option

    for feature in FEATURES.values():
        click.echo(f"{feature.name}={json.dumps(feature.default)}")
        click.echo(f"    {feature.meaning}")
    context.exit()


def _fault_rules(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> list[dict[str, Any]]:
    from yt_exactly_once.local import faults  # noqa: PLC0415 - most runs have none

    try:
        return [faults.from_text(text) for text in texts]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("local")
@file_option("--data-dir D", "Directory of the store.", required=True)
@option("--port P", "HTTP port of the first proxy, 0 for any.", default=8000)
@option("--rpc-port P", "RPC port of the first proxy, 0 for any.", default=0)
@option("--proxies N", "Number of proxies.", default=1)
@file_option(
    "--token-file FILE",
    "Requests must carry the token in this file. A missing file is created.  "
    f"[default: the variable {TOKEN_VARIABLE}, or no token]",
)
@option(
    "--trim-every S",
    "Every S seconds, trim the rows that all vital consumers have read.  [default: never]",
    type=float,
)
@several(
    "--feature feature_texts NAME[=VALUE]",
    "Choose a behaviour that differs between versions of YTsaurus",
)
@click.option(
    "--list-features",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_features,
    help="List the features with their defaults, and exit.",
)
@option(
    "--fault rules ACTION[,NAME=VALUE]...",
    f"Make commands fail; may be repeated. Names: {_FAULT_NAMES}. "
    "Example: lose_answer,command=commit_transaction,probability=0.01,seed=7,count=null",
    multiple=True,
    callback=_fault_rules,
)
@file_option("--replay-faults FILE", "Repeat the faults of a recorded plan.")
@file_option("--record-faults FILE", "At the end, write which request met which fault.")
def local(
    data_dir: Path,
    token_file: Path | None,
    feature_texts: tuple[str, ...],
    rules: list[dict[str, Any]],
    replay_faults: Path | None,
    record_faults: Path | None,
    **options: Any,
) -> None:
    """Serve a durable embedded YTsaurus cluster on this machine until Ctrl-C.

    The rules of --fault and --replay-faults replace the rules of an earlier run in the data directory.
    Every hit is logged there in proxy-N.log.
    """
    require_extra("local")
    from yt_exactly_once.local import LocalCluster  # noqa: PLC0415 - needs the extra
    from yt_exactly_once.local.features import parse  # noqa: PLC0415

    try:
        features = parse(list(feature_texts))
    except ValueError as error:
        raise ConfigError(
            str(error), remedy="List them with: yt-exactly-once local --list-features"
        ) from error
    token = os.environ.get(TOKEN_VARIABLE) or None
    if token_file is not None:
        token = _kept_secret(token_file, "--token-file")
    rules = [*rules, *_recorded_faults(replay_faults)]
    require_folder(record_faults, "--record-faults")
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with LocalCluster(data_dir, token=token, features=features, **options) as cluster:
        if rules:
            cluster.clear_faults()
            cluster.inject_plan(rules)
        for url in cluster.proxy_urls:
            click.echo(f"proxy {url}")
        for address in cluster.rpc_addresses:
            click.echo(f"rpc   {address}")
        address = cluster.proxy_urls[0].removeprefix("http://")
        shown = "..." if token_file is None else f"$(cat {token_file})"
        prefix = f"YT_TOKEN={shown} " if token else ""
        click.echo(f"try   {prefix}yt --proxy {address} list /")
        stopped.wait()
        if record_faults is not None:
            record_faults.write_text(json.dumps(cluster.fault_plan(), indent=2) + "\n")


def _recorded_faults(plan: Path | None) -> list[Any]:
    if plan is None:
        return []
    try:
        rules = json.loads(plan.read_text())
        if not isinstance(rules, list):
            raise TypeError("it is not a list of rules")  # noqa: TRY301 - as if it could not be read
    except (OSError, TypeError, ValueError) as error:
        raise ConfigError(
            f"The plan of faults cannot be read: {error}",
            remedy="Pass --replay-faults a file that --record-faults has written",
            path=plan,
        ) from error
    return rules
