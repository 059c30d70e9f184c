"""One proxy process, seen from its parent: started, waited for, stopped or killed."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

HOST = "127.0.0.1"
START_SECONDS = 60.0
_STOP_SECONDS = 15.0
_LOG_TAIL = 4000
_REFUSED = 65
_TOKEN_VARIABLE = "YT_LOCAL_TOKEN"  # noqa: S105 - the name of a variable

_MEMORY = {
    # Otherwise every worker thread has a heap of its own, which keeps what it once needed.
    "MALLOC_ARENA_MAX": "2",
    # Memory that glibc and Arrow return is cleared by the kernel, page by page, for the next request.
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MIMALLOC_PURGE_DELAY": "-1",
}


class LocalClusterError(Exception):
    """The embedded cluster cannot start or do what was asked; the text names the remedy."""


def open_private(path: Path, mode: str) -> IO[Any]:
    """Open a file that only this user may read, whatever the folder allows."""
    opened = open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115
    os.fchmod(opened.fileno(), 0o600)
    return opened


class ProxyProcess:
    """One proxy as a child process; a port of 0 is any, and only clients with the token are let in."""

    def __init__(
        self,
        data_dir: Path,
        number: int,
        port: int,
        rpc_port: int,
        token: str | None,
        options: Sequence[str],
    ) -> None:
        self.port = port
        self.rpc_port = rpc_port
        self._log_path = data_dir / f"proxy-{number}.log"
        environment = {**_MEMORY, **os.environ, _TOKEN_VARIABLE: token or ""}
        command = [sys.executable, "-m", "yt_exactly_once.local.server", f"--data-dir={data_dir}"]
        command += [f"--port={port}", f"--rpc-port={rpc_port}", f"--parent={os.getpid()}", *options]
        with open_private(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                # Ctrl-C in a terminal is for the parent, which then ends its children.
                start_new_session=True,
                umask=0o077,
            )
        self.pid = self._process.pid

    @property
    def url(self) -> str:
        """Address for HTTP clients."""
        return f"http://{HOST}:{self.port}"

    def wait_ready(self) -> None:
        """Wait for the line that says where the proxy listens."""
        output = self._process.stdout
        assert output is not None
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            line = output.readline() if selector.select(START_SECONDS) else b""
        if line:
            ready = json.loads(line)
            self.port, self.rpc_port = ready["port"], ready["rpc_port"]
            return
        self._process.kill()
        code = self._process.wait()
        log = self._log_path.read_text(errors="replace")[-_LOG_TAIL:]
        last = log.strip().rpartition("\n")[2]
        if last.startswith("ModuleNotFoundError"):
            raise LocalClusterError(
                f"The embedded cluster lacks a package ({last}); install yt-exactly-once[local]"
            )
        if code == _REFUSED:
            raise LocalClusterError(last)
        raise LocalClusterError(
            f"A proxy of the embedded cluster did not start (exit code {code}). Its log"
            f" {self._log_path} ends with:\n{log}"
        )

    def is_alive(self) -> bool:
        """Tell whether the process runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self.wait_stopped()

    def ask_to_stop(self) -> None:
        """Tell the process to finish what it does and end."""
        if self.is_alive():
            self._process.send_signal(signal.SIGTERM)

    def wait_stopped(self) -> None:
        """Wait for the end, and enforce it after a while."""
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        # Its end closes the pipe too.
        with self._process:
            pass
