"""Processes that plan are forked from one that has imported everything, and live as long as Spark's."""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from typing import NamedTuple

import pytest

from yt_exactly_once.spark.tuning import SWITCH, planners
from yt_exactly_once.spark.tuning.start import INTERPRETER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs abstract addresses")

SECRET = "of Spark"
PATIENCE_SECONDS = 60.0


class Started(NamedTuple):
    """The process that Spark has started, and the connection and the id of the one that plans."""

    first: subprocess.Popen
    connection: socket.socket
    pid: int


def environment(**more):
    path = os.pathsep.join([INTERPRETER, *sys.path])
    spark = {"PYTHON_WORKER_FACTORY_SECRET": SECRET, "PYTHONUNBUFFERED": "YES"}
    # Spark's are those of the JVM, which do not change.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**own, **spark, "PYTHONPATH": path, **more}


@contextlib.contextmanager
def daemon():
    """The process from which Spark forks those that open queues, ready to fork."""
    with subprocess.Popen(
        [sys.executable, "-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdout.read(4)  # its port
        yield process
        process.stdin.close()


@pytest.fixture
def _daemon():
    with daemon():
        yield


@pytest.fixture
def plan():
    """Start a process that plans, as Spark does, and return it when it has called back."""
    with contextlib.ExitStack() as stack:

        def start(**more):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                listener.settimeout(PATIENCE_SECONDS)
                port = str(listener.getsockname()[1])
                first = stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-m", planners.PLANNER],
                        env=environment(PYTHON_WORKER_FACTORY_PORT=port, **more),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                    )
                )
                stack.callback(first.kill)
                connection, _ = listener.accept()
            stack.enter_context(connection)
            connection.settimeout(PATIENCE_SECONDS)
            with connection.makefile("rb") as told:
                length = struct.unpack("!i", told.read(4))[0]
                assert told.read(length).decode() == SECRET
                connection.sendall(struct.pack("!i", 2) + b"ok")
                pid = struct.unpack("!i", told.read(4))[0]
            return Started(first, connection, pid)

        yield start


@pytest.mark.usefixtures("_daemon")
def test_process_that_plans_is_forked_and_ends_with_the_first_one(plan):
    """Spark stops a query by killing the process that it has started."""
    planning = plan()
    assert planning.pid != planning.first.pid
    planning.first.terminate()
    assert planning.connection.recv(1) == b""


@pytest.mark.usefixtures("_daemon")
def test_first_process_ends_as_the_other_one_does(plan):
    """Spark tells a query of a process that has ended; what it printed is in Spark's log."""
    planning = plan()
    planning.connection.shutdown(socket.SHUT_WR)  # so that it fails to read what Spark sends
    assert planning.first.wait(PATIENCE_SECONDS) not in {0, None}
    killed = plan()
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.first.wait(PATIENCE_SECONDS) not in {0, None}


@pytest.mark.usefixtures("_daemon")
def test_process_with_other_settings_plans_by_itself(plan):
    """What was imported may have read them."""
    elsewhere = {"SPARK_LOCAL_DIRS": "/tmp/blockmgr-of-another-context"}
    for more in ({SWITCH: "off"}, {"YT_TOKEN": "another"}, elsewhere):
        planning = plan(**more)
        assert planning.pid == planning.first.pid


def test_query_survives_the_process_that_was_forked_from(plan):
    """Spark ends it when it does not answer."""
    with daemon() as ending:
        planning = plan()
        ending.kill()
    assert planning.pid != planning.first.pid
    another = plan()
    assert another.pid == another.first.pid
    assert planning.first.poll() is None
    planning.first.terminate()
    assert planning.connection.recv(1) == b""


def test_processes_of_this_user_only(monkeypatch):
    """Any user may take the address before the server, or call it: the environment holds the token."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert planners.is_own(ours)
        monkeypatch.setattr(os, "getuid", lambda: -1)
        assert not planners.is_own(ours)


def test_nothing_is_told_to_a_server_of_another_user(monkeypatch):
    """It may have taken the address."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(planners._address())
        listener.listen()
        monkeypatch.setattr(planners, "is_own", lambda _connection: False)
        planners.hand_over()
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(1 << 16) == b""
