"""What the tasks of all modes do for the Python worker that they run in."""

import gc
import pickle
import socket
import subprocess
import sys
import weakref
from threading import Barrier
from types import ModuleType, SimpleNamespace
from unittest.mock import Mock

import pytest

from yt_exactly_once.importing import uncollected
from yt_exactly_once.spark import worker
from yt_exactly_once.spark.sink import stream_writer
from yt_exactly_once.spark.sink.arrived import WriterTask
from yt_exactly_once.spark.sink.modes import mode
from yt_exactly_once.spark.sink.modes.push import PushTask
from yt_exactly_once.spark.sink.modes.tasks import InsertTask
from yt_exactly_once.spark.sink.stream_writer import StreamWriter
from yt_exactly_once.spark.source import range as source_range
from yt_exactly_once.spark.source.packed import PackedQueue
from yt_exactly_once.spark.source.reader import QueueStreamReader
from yt_exactly_once.spark.worker import side_by_side, spare_modules


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self):
        self.self = self


@pytest.fixture
def _new_process(monkeypatch):
    """A process in which nothing is spared yet, and nothing afterwards."""
    monkeypatch.setattr(worker, "_spared", 0)
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_new_process")
def test_modules_are_spared_and_garbage_of_tasks_is_not():
    """A worker would look at every module after each task; a later call must not keep garbage."""
    spare_modules()
    assert gc.get_freeze_count() > 10_000
    ring = weakref.ref(Ring())
    spare_modules()
    gc.collect()
    assert ring() is None


@pytest.mark.usefixtures("_new_process")
def test_what_a_task_imports_is_spared_by_the_next_one(monkeypatch):
    """The first task that sends imports a third of all."""
    spare_modules()
    before = gc.get_freeze_count()
    late = ModuleType("late")
    late.made = [[] for _ in range(1_000)]
    monkeypatch.setitem(sys.modules, "late", late)
    spare_modules()
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

    monkeypatch.setattr(module, "spare_modules", called)
    with pytest.raises(CalledError):
        run()


@pytest.fixture
def slow():
    """A TCP connection that delays its acknowledgements, as one does that answers."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
    ):
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert not near.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        yield near


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
    assert slow.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


def test_task_is_unpickled_where_nobody_tells_the_open_files(monkeypatch, tmp_path):
    """A container may have no /proc."""
    monkeypatch.setattr(worker, "_OPEN_FILES", tmp_path / "absent")
    assert pickle.loads(pickle.dumps(WriterTask(None))) == WriterTask(None)


_PULLS = """
import resource
from yt_exactly_once.spark.worker import keep_freed_memory

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


@pytest.mark.skipif(sys.platform != "linux", reason="about glibc")
def test_memory_of_a_pull_serves_the_next_one():
    """Otherwise the kernel clears its pages again for each of four pulls: 28 000 in all."""
    told = subprocess.run([sys.executable, "-c", _PULLS], capture_output=True, check=True)
    assert int(told.stdout) < 1_000


@pytest.mark.timeout(30)
def test_calls_on_all_threads_do_not_wait_for_threads():
    """The driver stands in for several tasks on one thread each, and each pushes to several sessions."""
    all_begun = Barrier(2)

    def stand_in():
        all_begun.wait()
        return side_by_side([lambda: "one", lambda: "other"], 2)

    assert side_by_side([stand_in, stand_in], 2) == [["one", "other"]] * 2


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
