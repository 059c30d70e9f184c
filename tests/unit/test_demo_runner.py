"""How the demo's parent treats the lives of its child."""

from __future__ import annotations

import io
from collections import deque
from types import SimpleNamespace

import pytest
from rich.console import Console

from yt_exactly_once.child import ChildFailedError
from yt_exactly_once.config import WriteMode
from yt_exactly_once.demo import runner
from yt_exactly_once.demo.messages import ERROR, EVENT, QUERY_FAILED
from yt_exactly_once.demo.report import Display

BUSY = {EVENT: QUERY_FAILED, ERROR: "[X] Python worker failed to connect back.\n  at org"}
WRONG = {EVENT: QUERY_FAILED, ERROR: "SchemaMismatchError: no"}


@pytest.fixture
def supervised(monkeypatch):
    """Run a demo without kills whose child lives as told; return how often it was started, and the output."""

    def run(*lives):
        started = []

        class Child:
            def __init__(self, *_):
                self.events = deque([lives[min(len(started), len(lives) - 1)]])
                started.append(self)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def next_event(self, _patience):
                event = self.events.popleft() if self.events else None
                if event is None:
                    raise EOFError
                return event

            def require_success(self):
                pass

            def failure(self, what, error=None):
                return ChildFailedError(what, remedy=error or "")

        monkeypatch.setattr(runner, "Child", Child)
        console = Console(file=io.StringIO(), width=200)
        options = SimpleNamespace(mode=WriteMode.TRANSACTIONAL, backend="http")
        files = SimpleNamespace(path="data", log="log")
        with Display(console) as display:
            runner.Supervision(files, ["proxy"], options, 10, 10, display=display).run(iter(()))
        return len(started), console.file.getvalue()

    return run


def test_driver_that_found_its_machine_too_busy_is_started_again(supervised):
    """Spark waits ten seconds for a Python process; a user would start the driver again, too."""
    starts, output = supervised(BUSY, BUSY, None)
    assert starts == 3
    assert output.count("The driver starts again") == 2


@pytest.mark.parametrize("event", [BUSY, WRONG])
def test_driver_that_fails_for_good_ends_the_demo(supervised, event):
    """With what Spark said."""
    with pytest.raises(ChildFailedError, match=event[ERROR][:12].replace("[", ".")):
        supervised(event)
