"""The child process: heard, and gone with all its own children when killed."""

import os

import pytest

from yt_exactly_once.testing.child import Child, ChildFailedError, session_members

_PATIENCE = 60.0

_TALKER = """
import sys
from multiprocessing.connection import Connection
report = Connection(int(sys.argv[1]), readable=False)
report.send({"event": "one"})
report.send({"event": "two"})
"""

_FAMILY = """
import subprocess, sys
from multiprocessing.connection import Connection
# A member of the same session that has left the process group, as Spark's worker daemon does.
code = "import os, sys; os.setpgid(0, 0); print('ready', flush=True); sys.stdin.read()"
other = subprocess.Popen(
    [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
other.stdout.readline()
Connection(int(sys.argv[1]), readable=False).send({"event": "born", "pid": other.pid})
sys.stdin.read()
"""


@pytest.fixture
def start(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def start(code):
        (tmp_path / "child_under_test.py").write_text(code)
        return Child("child_under_test", str, tmp_path / "child.log")

    return start


def test_events_arrive_in_order_and_then_the_end(start):
    """What the child tells before it ends is heard after it has ended."""
    with start(_TALKER) as child:
        assert child.next_event(_PATIENCE) == {"event": "one"}
        assert child.next_event(_PATIENCE) == {"event": "two"}
        with pytest.raises(EOFError):
            child.next_event(_PATIENCE)
        child.require_success()


def test_silence_is_told_from_the_end(start):
    """A child that waits is not a child that has ended."""
    with start("import sys; sys.stdin.read()") as child:
        assert child.next_event(0.01) is None


def test_failure_of_the_child_shows_its_last_lines(start):
    """The user need not search for the log."""
    with start(_TALKER + "sys.exit('it was the butler')") as child:
        child.next_event(_PATIENCE)
        child.next_event(_PATIENCE)
        with pytest.raises(EOFError):
            child.next_event(_PATIENCE)
        with pytest.raises(ChildFailedError, match="it was the butler"):
            child.require_success()


def test_kill_ends_members_of_the_session_outside_the_process_group(start):
    """Nothing of a killed driver lives on."""
    with start(_FAMILY) as child:
        born = child.next_event(_PATIENCE)
        assert sorted(session_members(child.pid)) == sorted([child.pid, born["pid"]])
        assert os.getpgid(born["pid"]) != os.getpgid(child.pid)
        child.kill()
        assert session_members(child.pid) == []


def test_leaving_the_block_kills_the_child(start):
    """An error in the parent leaves no child behind."""
    child = start("import sys; sys.stdin.read()")
    with pytest.raises(ZeroDivisionError), child:
        raise ZeroDivisionError
    assert session_members(child.pid) == []
