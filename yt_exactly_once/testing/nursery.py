"""Python for Spark without the wait: a process that has imported everything and forks the others from itself.

A fresh driver starts a dozen Python processes, each of which spends seconds of processor time on imports.
Spark is given a tiny program in place of the interpreter; it hands its arguments, environment and open
files to the nursery, which forks a process that goes on as the interpreter would have. The environment
holds the token, and any user may take an abstract address: each end checks whose process the other one is.

A driver that is killed forks its nursery off itself: all of them stay in its session, and are killed and
stopped with it. It needs Linux. The demo and the tests use it, and nothing else does.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import runpy
import signal
import socket
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from yt_exactly_once.spark.tuning.planners import is_own

NAME = "spark-python"
"""Name of the processes that are forked, for whoever looks for one to kill."""

_IMPORTED: tuple[str, ...] = (
    "pyarrow.compute",
    "pyspark.worker",
    "yt_exactly_once.spark.sink.encode",
    "yt_exactly_once.spark.modes",
)
if find_spec("pyspark.sql.datasource") is not None:
    _IMPORTED = (*_IMPORTED, "yt_exactly_once.spark.data_source")
_REQUEST_BYTES = 1 << 20
_STREAMS = 3

_INTERPRETER = """#!{python} -IS
import json, os, socket, struct, sys
if sys.argv[1:] and sys.argv[1] != "-m":
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
nursery = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
nursery.connect({address!r})
if struct.unpack("3i", nursery.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1] != os.getuid():
    sys.exit("The nursery at the address of this one is of another user; it gets no environment")
request = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
socket.send_fds(nursery, [request], [0, 1, 2])
for stream in (0, 1, 2):
    os.close(stream)
os._exit(int(nursery.recv(16) or b"1"))
"""


def open_nursery(folder: Path, report: int) -> Path:
    """Fork the nursery off this process, which has no threads yet; return Spark's interpreter.

    Args:
        folder: for the interpreter.
        report: file descriptor whose end must be noticed, and that nobody else may hold.
    """
    for module in _IMPORTED:
        importlib.import_module(module)
    # An abstract address, as the names of working folders may be too long for one.
    address = f"\0yt-exactly-once-nursery-{os.getpid()}"
    program = folder / f"python-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        program.write_text(_INTERPRETER.format(python=sys.executable, address=address))
        program.chmod(0o700)
        if os.fork() == 0:
            os.close(report)
            _serve(listener)
    return program


def _serve(listener: socket.socket) -> NoReturn:
    """Fork a process per request, for ever."""
    # Nobody waits for the children here: the one who asked for a process waits for its word.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        # An abstract address has no permissions: any user of this machine may connect.
        if not is_own(connection):
            connection.close()
            continue
        if os.fork() == 0:
            listener.close()
            _live(connection)
        connection.close()


def _live(connection: socket.socket) -> NoReturn:
    """Go on as the interpreter that was asked for, and tell how it ended."""
    code = 1
    try:
        request, streams, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, _STREAMS)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        arguments, environment, folder = json.loads(request)
        Path("/proc/self/comm").write_text(NAME)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        code = _run(arguments)
    except BaseException:  # noqa: BLE001 - whatever it is, this process must not go on as the nursery
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        with contextlib.suppress(OSError):
            connection.send(str(code).encode())
        os._exit(code)


def _run(arguments: list[str]) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Processes that share their past must not share their dice.
    random.seed()
    sys.path[:0] = [
        path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path
    ]
    _, module, *rest = arguments  # -m
    sys.argv = [module, *rest]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code: Any = end.code
        return code if isinstance(code, int) else int(code is not None)
    return 0
