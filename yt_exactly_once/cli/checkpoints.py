"""`checkpoints`: the gateway for checkpoints on YTsaurus as a process of its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import click

from yt_exactly_once.cli.extras import require_extra
from yt_exactly_once.errors import ConfigError

_STOPPING = {signal.SIGINT, signal.SIGTERM}


@click.command("checkpoints")
@click.option(
    "--root",
    "roots",
    multiple=True,
    required=True,
    metavar="PATH",
    help="Folder in Cypress that is served, with everything below; may be repeated.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="A",
    show_default=True,
    help="Address of this machine to listen on; 0.0.0.0 means all.",
)
@click.option(
    "--port", type=int, default=9870, metavar="P", show_default=True, help="Port; 0 takes any."
)
@click.option(
    "--address",
    metavar="HOST[:PORT]",
    help="Under which Spark's driver and executors reach the gateway.  [default: --host]",
)
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the secret is kept. A missing file is created, so the locations survive a restart.  "
    "[default: a new secret with each start]",
)
@click.option(
    "--proxy",
    metavar="HOST:PORT",
    envvar="YT_PROXY",
    show_envvar=True,
    help="Address of a proxy. The token comes from YT_TOKEN.",
)
def command(
    roots: tuple[str, ...],
    host: str,
    port: int,
    address: str | None,
    secret_file: Path | None,
    proxy: str | None,
) -> None:
    """Let Spark keep checkpoints on YTsaurus, until Ctrl-C.

    Prints one location per root. It contains the secret: who knows it can read and change the checkpoints.
    """
    require_extra("checkpoints")
    from yt_exactly_once.checkpoints import checkpoints  # noqa: PLC0415 - needs the extra

    secret = None if secret_file is None else _kept_secret(secret_file)
    # All threads inherit the mask, so no other thread takes the signal that this one waits for.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        with checkpoints(
            proxy=proxy, host=host, port=port, address=address, secret=secret, roots=roots
        ) as store:
            for root in roots:
                click.echo(f"{root} {store.url(root)}")
            signal.sigwait(_STOPPING)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _kept_secret(file: Path) -> str:
    """Return the secret in a file, and create the file if it is missing.

    Raises:
        ConfigError: the file cannot be used, or others may read it.
    """
    from yt_exactly_once.checkpoints.places import new_secret  # noqa: PLC0415

    try:
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if file.stat().st_mode & 0o077:
                raise ConfigError(
                    "Other users of the machine can read the file with the secret",
                    remedy=f"Run: chmod 600 {file}",
                    path=file,
                ) from None
            return file.read_text().strip()
        secret = new_secret().reveal()
        with os.fdopen(descriptor, "w") as opened:
            opened.write(secret + "\n")
    except OSError as error:
        raise ConfigError(
            f"The file with the secret cannot be used: {error.strerror}",
            remedy="Pass another path to --secret-file",
            path=file,
        ) from error
    return secret
