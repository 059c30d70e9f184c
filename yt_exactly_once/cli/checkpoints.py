"""`checkpoints`: the gateway for checkpoints on YTsaurus as a process of its own."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import click

from yt_exactly_once.cli.extras import require_extra
from yt_exactly_once.cli.options import file_option, option, proxy_option, several
from yt_exactly_once.cli.secret_file import kept_secret

_STOPPING = {signal.SIGINT, signal.SIGTERM}


@click.command("checkpoints")
@several(
    "--root roots", "PATH", "Folder in Cypress that is served, with everything below", required=True
)
@option(
    "--host", "A", "Address of this machine to listen on; 0.0.0.0 means all.", default="127.0.0.1"
)
@option("--port", "P", "Port; 0 takes any.", type=int, default=9870)
@option(
    "--address",
    "HOST[:PORT]",
    "Under which Spark's driver and executors reach the gateway.  [default: --host]",
)
@file_option(
    "--secret-file",
    "Where the secret is kept. A missing file is created, so the locations survive a restart.  "
    "[default: a new secret with each start]",
)
@proxy_option
def command(roots: tuple[str, ...], secret_file: Path | None, **address: Any) -> None:
    """Let Spark keep checkpoints on YTsaurus, until Ctrl-C.

    Prints one location per root. It contains the secret: who knows it can read and change the checkpoints.
    """
    require_extra("checkpoints")
    from yt_exactly_once.checkpoints import checkpoints  # noqa: PLC0415 - needs the extra

    secret = None if secret_file is None else kept_secret(secret_file, "--secret-file")
    # All threads inherit the mask, so no other thread takes the signal that this one waits for.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        with checkpoints(secret=secret, roots=roots, **address) as store:
            for root in roots:
                click.echo(f"{root} {store.url(root)}")
            signal.sigwait(_STOPPING)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
