"""What acts on a process: in its own processes and sockets, while the switch is on, and nowhere else."""

import gc
import os
import pickle
import socket
import subprocess
import sys
import weakref
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType, SimpleNamespace
from unittest.mock import Mock

import pytest

from yt_exactly_once.spark import tuning
from yt_exactly_once.spark.doors import stream_writer
from yt_exactly_once.spark.doors.arrived import WriterTask
from yt_exactly_once.spark.doors.stream_writer import StreamWriter
from yt_exactly_once.spark.modes import mode
from yt_exactly_once.spark.modes.push import PushTask
from yt_exactly_once.spark.modes.tasks import InsertTask
from yt_exactly_once.spark.source import range as source_range
from yt_exactly_once.spark.source.packed import PackedQueue
from yt_exactly_once.spark.source.reader import QueueStreamReader
from yt_exactly_once.spark.tuning import SWITCH, Where, acknowledge, collector, start
from yt_exactly_once.spark.tuning.collector import freeze_modules, uncollected
from yt_exactly_once.spark.tuning.table import TABLE

OF_A_WORKER = "PYTHON_WORKER_FACTORY_SECRET"
"""What Spark sets, with every version of PySpark."""


@pytest.fixture
def worker(monkeypatch):
    """A process that Spark has started."""
    monkeypatch.setenv(OF_A_WORKER, "of Spark")


WORKERS = [one for one in TABLE if one.where is Where.WORKER]


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("one", TABLE, ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("switch", "acts"), [(None, True), ("on", True), ("off", False), ("0", False)]
)
def test_one_switch_stops_everything(one, switch, acts, monkeypatch):
    """What does not say `on` is off: that changes no result."""
    if switch is not None:
        monkeypatch.setenv(SWITCH, switch)
    called = replace(one, act=Mock())
    called("with this")
    assert called.act.called == acts


@pytest.mark.parametrize("one", WORKERS, ids=lambda one: one.name)
def test_process_of_the_user_is_left_alone(one):
    """The driver does what tasks do where it sends the rows of a small batch in their place."""
    called = replace(one, act=Mock())
    called()
    assert not called.act.called


def test_table_has_everything_that_acts():
    """The docs show the table, and users look there for what to switch off."""
    room = [
        import_module(f"{tuning.__name__}.{found.name}") for found in iter_modules(tuning.__path__)
    ]
    found = {
        one for module in room for one in vars(module).values() if isinstance(one, tuning.Tuning)
    }
    assert found == set(TABLE)


@pytest.mark.parametrize("switch", ["on", "off"])
def test_start_of_other_functions_stays_as_it_is(switch, monkeypatch):
    """A function of the user gets no `sitecustomize`, and nor does ours with the switch off."""
    monkeypatch.setenv(SWITCH, switch)
    for given in ({"PYTHONPATH": "/of/the/user"}, {}):
        environment = dict(given)
        spark = SimpleNamespace(sparkContext=Mock(environment=environment))
        start.start_sooner(spark.sparkContext)
        with start.started_sooner(spark):
            path = environment.get("PYTHONPATH", "").split(os.pathsep)
        assert (start.INTERPRETER in path) == (switch == "on")
        assert environment == given


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self):
        self.self = self


@pytest.fixture
def _new_process(monkeypatch):
    """A process of Spark in which nothing is spared yet, and nothing afterwards."""
    monkeypatch.setenv(OF_A_WORKER, "of Spark")
    monkeypatch.setattr(collector, "_frozen", 0)
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_new_process")
def test_modules_are_spared_and_garbage_of_tasks_is_not():
    """A worker would look at every module after each task; a later call must not keep garbage."""
    freeze_modules()
    assert gc.get_freeze_count() > 10_000
    ring = weakref.ref(Ring())
    freeze_modules()
    gc.collect()
    assert ring() is None


@pytest.mark.usefixtures("_new_process")
def test_what_a_task_imports_is_spared_by_the_next_one(monkeypatch):
    """The first task that sends imports a third of all."""
    freeze_modules()
    before = gc.get_freeze_count()
    late = ModuleType("late")
    late.made = [[] for _ in range(1_000)]
    monkeypatch.setitem(sys.modules, "late", late)
    freeze_modules()
    assert gc.get_freeze_count() >= before + 1_000


class CalledError(Exception):
    """Ends a task where it begins."""


@pytest.mark.parametrize(
    ("module", "run"),
    [
        (mode, lambda: next(InsertTask(None, unique_keys=False)([]))),
        (mode, lambda: next(PushTask(None, None, "")([]))),
        (stream_writer, lambda: StreamWriter(None).write(iter(()))),
        (source_range, lambda: QueueStreamReader.read(Mock(), None)),
    ],
    ids=["insert", "push", "format", "read"],
)
def test_every_task_spares_the_modules_first(module, run, monkeypatch):
    """Whatever it runs into afterwards."""

    def called():
        raise CalledError

    monkeypatch.setattr(module, "freeze_modules", called)
    with pytest.raises(CalledError):
        run()


@pytest.fixture
def connected():
    """Make TCP connections to an address of this machine that delay their acknowledgements."""
    with ExitStack() as opened:

        def connect(address):
            server = opened.enter_context(socket.create_server((address, 0)))
            near = opened.enter_context(socket.create_connection(server.getsockname()))
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            assert not acknowledges(near)
            return near

        yield connect


def acknowledges(connection):
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


@pytest.fixture
def slow(connected):
    """A connection to Spark, as a worker has one."""
    return connected("127.0.0.1")


@pytest.mark.usefixtures("worker")
@pytest.mark.skipif(sys.platform != "linux", reason="an option of Linux")
@pytest.mark.parametrize(
    "sent",
    [
        InsertTask(None, unique_keys=False),
        StreamWriter(WriterTask(None)),
        PackedQueue(SimpleNamespace(spark_schema=None, is_queue=True)),
    ],
    ids=["foreachBatch", "format", "source"],
)
def test_task_is_acknowledged_while_it_is_unpickled(slow, sent):
    """Spark holds its input back until then."""
    pickle.loads(pickle.dumps(sent))
    assert acknowledges(slow)


@pytest.mark.usefixtures("worker")
@pytest.mark.skipif(sys.platform != "linux", reason="an option of Linux")
def test_connections_to_other_machines_are_left_alone(connected, monkeypatch):
    """They are of the user's functions, or of the client; Spark is on this machine."""
    far, local = connected("127.0.0.1"), connected("127.0.0.1")
    server = far.getpeername()
    real = socket.socket.getpeername

    def named(connection):
        return ("192.0.2.7", 80) if real(connection) == server else real(connection)

    monkeypatch.setattr(socket.socket, "getpeername", named)
    acknowledge.acknowledge()
    assert (acknowledges(far), acknowledges(local)) == (False, True)


@pytest.mark.usefixtures("worker")
def test_task_is_unpickled_where_nobody_tells_the_open_files(monkeypatch, tmp_path):
    """A container may have no /proc."""
    monkeypatch.setattr(acknowledge, "_OPEN_FILES", tmp_path / "absent")
    assert pickle.loads(pickle.dumps(WriterTask(None))) == WriterTask(None)


_PULLS = """
import resource
from yt_exactly_once.spark.tuning.memory import keep_freed_memory

def pull():
    return len(b"".join([bytes([65]) * 2**20 for _ in range(14)]))

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

keep_freed_memory()
for _ in range(3):
    pull()
before = faults()
for _ in range(4):
    pull()
print(faults() - before)
"""


@pytest.mark.usefixtures("worker")
@pytest.mark.skipif(sys.platform != "linux", reason="about glibc")
def test_memory_of_a_pull_serves_the_next_one():
    """Otherwise the kernel clears its pages again for each of four pulls: 28 000 in all."""
    told = subprocess.run([sys.executable, "-c", _PULLS], capture_output=True, check=True)
    assert int(told.stdout) < 1_000


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("was_enabled", [True, False])
def test_collector_is_off_meanwhile_and_then_as_it_was(monkeypatch, was_enabled):
    """A program may have switched it off for good, and a module may be absent."""
    calls = []
    monkeypatch.setattr(gc, "isenabled", lambda: was_enabled)
    monkeypatch.setattr(gc, "disable", lambda: calls.append("disable"))
    monkeypatch.setattr(gc, "enable", lambda: calls.append("enable"))
    with pytest.raises(ModuleNotFoundError), uncollected():
        import no_such_module  # noqa: F401
    assert calls == ["disable", *(["enable"] if was_enabled else [])]
