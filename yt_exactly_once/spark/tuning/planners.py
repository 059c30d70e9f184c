"""The processes that plan batches, forked from one that has imported what all of them import.

For each query that reads a queue Spark starts a process that plans its batches. So the process from which
Spark forks those that open queues forks a server first. A process that Spark starts to plan hands its
environment and its open files to this server, which forks one that plans in its place. The first one stays:
to stop a query, Spark kills it, and then the server kills the other one. Where anything is not as expected,
a process imports and plans by itself. It needs Linux.

The environment holds the token, and any user may take an abstract address. So each end checks whose
process the other one is.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any, NamedTuple, NoReturn

PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that Spark starts for each query that reads a source in Python."""

_OF_SPARK = ("SPARK_", "PYSPARK_", "PYTHON_")
"""How the variables begin that Spark sets for one process. Those of Python itself have no `_` there."""

_FORKED = b"forked"
_PATIENCE_SECONDS = 3.0
_REQUEST_BYTES = 1 << 20
_CREDENTIALS = struct.Struct("3i")
"""Process, user and group of the other end of a socket."""


def open_server() -> None:
    """Fork a server off this process, which has imported everything and has no threads; it ends with it.

    Does nothing where another process serves this JVM, or on another system than Linux.
    """
    with suppress(OSError, AttributeError), socket.socket(*_KIND) as listener:
        listener.bind(_address())
        listener.listen()
        parent = os.pidfd_open(os.getpid())
        if os.fork() == 0:
            try:
                _Server(listener, parent).run()
            finally:
                os._exit(0)
        os.close(parent)


def hand_over() -> None:
    """Let a process that is forked plan in the place of this one; return if this one must do it."""
    with suppress(OSError, AttributeError), socket.socket(*_KIND) as server:
        server.settimeout(_PATIENCE_SECONDS)
        server.connect(_address())
        if not is_own(server):
            return
        request = json.dumps([dict(os.environ), sys.path, str(Path.cwd())]).encode()
        socket.send_fds(server, [request], [0, 1, 2])
        if server.recv(len(_FORKED)) == _FORKED:
            _stay(server)


def _stay(server: socket.socket) -> NoReturn:
    """Be the process that Spark knows until the other one has ended, and end alike."""
    code = b""
    with suppress(OSError):
        server.settimeout(None)
        code = server.recv(16)
    os._exit(int(code or b"1"))


def is_own(connection: socket.socket) -> bool:
    """Return whether the other end of a connection is a process of this user."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(credentials)[1]
    return user == os.getuid()


class _Planner(NamedTuple):
    """A process that plans.

    Attributes:
        first: connection to the process that Spark has started.
        ended: file descriptor that is readable when the process has ended.
    """

    first: socket.socket
    pid: int
    ended: int


class _Server:
    """Forks a process for each one that asks, and lets both end together."""

    def __init__(self, listener: socket.socket, parent: int) -> None:
        # What a terminal sends is for the JVM; without it, the parent and thus the server end.
        self._on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._environment, self._path = _settings(os.environ), [*sys.path]
        self._listener = listener
        self._events = DefaultSelector()
        self._events.register(listener, EVENT_READ, self._accept)
        self._events.register(parent, EVENT_READ, partial(self._close, parent))

    def run(self) -> None:
        """Serve until the parent and all who plan have ended."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):
            os.dup2(nothing, stream)
        os.close(nothing)
        while waits := self._events.get_map():
            for key, _ in self._events.select():
                # What came before may have ended it.
                if waits.get(key.fd) is key:
                    key.data()

    def _close(self, parent: int) -> None:
        for waiting in (self._listener, parent):
            self._events.unregister(waiting)
        self._listener.close()

    def _accept(self) -> None:
        files: list[int] = []
        first, _ = self._listener.accept()
        try:
            first.settimeout(_PATIENCE_SECONDS)
            if is_own(first):
                request, files, _, _ = socket.recv_fds(first, _REQUEST_BYTES, 3)
                environment, path, folder = json.loads(request)
                if _settings(environment) == self._environment and path == self._path:
                    self._fork(first, environment, folder, files)
                    return
        except (OSError, ValueError):
            pass  # who has asked does it alone
        finally:
            for file in files:
                os.close(file)
        first.close()

    def _fork(
        self,
        first: socket.socket,
        environment: Mapping[str, str],
        folder: str,
        files: Sequence[int],
    ) -> None:
        first.setblocking(False)
        with suppress(BlockingIOError):
            first.recv(1)  # who has asked has gone, and does it alone
            raise ConnectionError
        pid = os.fork()
        if pid == 0:
            first.close()
            self._plan(environment, folder, files)
        try:
            planner = _Planner(first, pid, os.pidfd_open(pid))
        except OSError:
            os.kill(pid, signal.SIGKILL)
            raise
        self._events.register(first, EVENT_READ, partial(self._kill, planner))
        self._events.register(planner.ended, EVENT_READ, partial(self._reap, planner))
        # One that has ended meanwhile is an event.
        with suppress(OSError):
            first.send(_FORKED)

    def _kill(self, planner: _Planner) -> None:
        self._events.unregister(planner.first)
        signal.pidfd_send_signal(planner.ended, signal.SIGKILL)

    def _reap(self, planner: _Planner) -> None:
        _, status = os.waitpid(planner.pid, 0)
        with suppress(OSError):
            planner.first.send(str(os.waitstatus_to_exitcode(status) & 0xFF).encode())
        with suppress(KeyError):
            self._events.unregister(planner.first)
        self._events.unregister(planner.ended)
        planner.first.close()
        os.close(planner.ended)

    def _plan(self, environment: Mapping[str, str], folder: str, files: Sequence[int]) -> NoReturn:
        """Go on as the process would that Spark has started."""
        import runpy  # noqa: PLC0415 - who hands over needs none of it
        import traceback  # noqa: PLC0415

        code: Any = 1
        try:
            for key in [*self._events.get_map().values()]:
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
                else:
                    os.close(key.fd)
            self._events.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            signal.signal(signal.SIGINT, self._on_interrupt)
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(folder)
            if not sys.flags.safe_path:
                sys.path.insert(0, folder)
            sys.argv[:] = ["-m"]
            runpy.run_module(PLANNER, run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code
        except BaseException:  # noqa: BLE001 - whatever it is, this process must not go on as the server
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


_KIND = (getattr(socket, "AF_UNIX", -1), getattr(socket, "SOCK_SEQPACKET", -1))


def _address() -> str:
    """Return the abstract address of the server for processes of one Spark context.

    Containers may share a network, and then addresses, with the same process ids in each. The folders for
    blocks have names of their own.
    """
    folders = os.environ.get("SPARK_LOCAL_DIRS", "")
    return f"\0yt-exactly-once-planners-{os.getppid()}-{folders[-60:]}"


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a process may have read while it imported."""
    return {name: value for name, value in environment.items() if not name.startswith(_OF_SPARK)}
