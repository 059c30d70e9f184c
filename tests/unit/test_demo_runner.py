"""How the demo's parent treats the lives of its child."""

import io
import json
from collections import deque
from pathlib import Path

import pytest
from rich.console import Console

from yt_exactly_once.demo import supervision
from yt_exactly_once.demo.display import Display
from yt_exactly_once.demo.layout import QUERIES, Work
from yt_exactly_once.demo.runner import run_lives
from yt_exactly_once.demo.schedule import LAST_LIFE_ROWS, Kind, Moment
from yt_exactly_once.observability import Event
from yt_exactly_once.testing.child import ERROR, EVENT, QUERY, QUERY_FAILED, ChildFailedError

BUSY = {EVENT: QUERY_FAILED, ERROR: "[X] Python worker failed to connect back.\n  at org"}
WRONG = {EVENT: QUERY_FAILED, ERROR: "SchemaMismatchError: no"}


class Child:
    """Lives as told, the last life again and again."""

    def __init__(self, _module, argument, _log):
        self.number = sum(line.startswith("start") for line in self.told)
        self.events = deque(self.lives[min(self.number, len(self.lives) - 1)])
        self.told.append(f"start {self.number}")
        assert json.loads(argument(7)) == {"data_dir": "data", "report": 7}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.told.append(f"gone {self.number}")

    def send(self, line):
        self.told.append(f"work {self.number}, {json.loads(line)['rows_per_partition']} rows")

    def next_event(self, _patience):
        if not self.events:
            raise EOFError
        return self.events.popleft()

    def kill(self):
        if (line := f"kill {self.number}") not in self.told:
            self.told.append(line)

    def require_success(self):
        pass

    def failure(self, what, error=None):
        return ChildFailedError(what, remedy=error or "")


@pytest.fixture
def children(monkeypatch):
    """Say how children live; return what they were told and did."""

    def born(*lives):
        told = []
        monkeypatch.setattr(
            supervision, "Child", type("Born", (Child,), {"lives": lives, "told": told})
        )
        return told

    return born


def supervised(display):
    return supervision.Supervision("module", Path("data"), display.say)


def run(running, display, *deaths):
    run_lives(running, Work("transactional", "http", 10), iter(deaths), display)


def test_driver_that_found_its_machine_too_busy_is_started_again(children):
    """Spark waits ten seconds for a Python process; a user would start the driver again, too."""
    told, console = children([BUSY], [BUSY], []), Console(file=io.StringIO(), width=200)
    with Display(console) as display:
        run(supervised(display), display)
    assert [line for line in told if "start" in line] == ["start 0", "start 1", "start 2"]
    assert console.file.getvalue().count("The driver starts again") == 2


@pytest.mark.parametrize("event", [BUSY, WRONG])
def test_driver_that_fails_for_good_ends_the_demo(children, event):
    """With what Spark said."""
    children([event])
    with (
        Display(Console(file=io.StringIO())) as display,
        pytest.raises(ChildFailedError, match=event[ERROR][:12].replace("[", ".")),
    ):
        run(supervised(display), display)


def test_next_driver_hears_of_its_work_only_after_the_kill(children):
    """It starts before, and so must not be able to touch the cluster; the last driver has no successor."""
    commit = {EVENT: Event.BATCH_COMMITTED, QUERY: QUERIES[0].name, "rows": 1}
    moment = Moment(Kind("", Event.BATCH_COMMITTED, 0.0), commits=1, delay=0.0)
    told = children([commit | {"batch": 0}, commit | {"batch": 1}], [])
    with Display(Console(file=io.StringIO())) as display, supervised(display) as running:
        assert told == ["start 0"]
        run(running, display, moment)
    assert told == [
        *["start 0", "work 0, 10 rows", "start 1", "kill 0", "gone 0"],
        *[f"work 1, {10 * LAST_LIFE_ROWS} rows", "gone 1"],
    ]
