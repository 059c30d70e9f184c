"""How the demo's parent treats the lives of its child."""

from __future__ import annotations

import io
import json
from collections import deque
from types import SimpleNamespace

import pytest
from rich.console import Console

from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.demo import runner
from yt_exactly_once.demo.child import ChildFailedError
from yt_exactly_once.demo.layout import QUERIES
from yt_exactly_once.demo.messages import ERROR, EVENT, QUERY, QUERY_FAILED
from yt_exactly_once.demo.report import Display
from yt_exactly_once.demo.schedule import LAST_LIFE_ROWS, Kind, Moment
from yt_exactly_once.observability import Event

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

            def send(self, _line):
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
        options = SimpleNamespace(mode=DeliveryMode.TRANSACTIONAL, backend="http")
        files = SimpleNamespace(path="data", log="log")
        with Display(console) as display:
            supervision = runner.Supervision(files, options, 10, 10, display=display)
            supervision.run(["proxy"], iter(()))
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


def test_next_driver_hears_of_its_work_only_after_the_kill(monkeypatch):
    """It starts before, and so must not be able to touch the cluster; the last driver has no successor."""
    told = []
    commit = {EVENT: Event.BATCH_COMMITTED, QUERY: QUERIES[0].name, "rows": 1}
    moment = Moment(Kind("", Event.BATCH_COMMITTED, 0.0), commits=1, delay=0.0)
    lives = iter([[commit | {"batch": 0}, commit | {"batch": 1}], []])

    class Child:
        def __init__(self, _module, argument, _log):
            self.number = len([line for line in told if line.startswith("start")])
            self.events = deque(next(lives))
            told.append(f"start {self.number}")
            assert json.loads(argument(7)) == {"data_dir": "data", "report": 7}

        def __enter__(self):
            return self

        def __exit__(self, *_):
            told.append(f"gone {self.number}")

        def send(self, line):
            told.append(f"work {self.number}, {json.loads(line)['rows_per_partition']} rows")

        def next_event(self, _patience):
            if not self.events:
                raise EOFError
            return self.events.popleft()

        def kill(self):
            if (line := f"kill {self.number}") not in told:
                told.append(line)

        def require_success(self):
            pass

    monkeypatch.setattr(runner, "Child", Child)
    options = SimpleNamespace(mode=DeliveryMode.TRANSACTIONAL, backend="http")
    files = SimpleNamespace(path="data", log="log")
    with (
        Display(Console(file=io.StringIO())) as display,
        runner.Supervision(files, options, 100, 10, display=display) as supervision,
    ):
        assert told == ["start 0"]
        supervision.run(["proxy"], iter([moment]))
    assert told == [
        *["start 0", "work 0, 10 rows", "start 1", "kill 0", "gone 0"],
        *[f"work 1, {10 * LAST_LIFE_ROWS} rows", "gone 1"],
    ]
