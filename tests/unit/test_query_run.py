"""When a run looks at its targets again."""

from concurrent.futures import Future

import pytest

from yt_exactly_once.spark.sink import run as query_run
from yt_exactly_once.spark.sink.run import LOOK_INTERVAL, QueryRun


@pytest.fixture
def run(monkeypatch):
    """A run that has just prepared its targets, and a clock that a test moves."""
    now = [100.0]
    monkeypatch.setattr(query_run.time, "monotonic", lambda: now[0])
    run = QueryRun("run")
    run.prepared("schema", ())
    run.wait = lambda seconds: now.__setitem__(0, now[0] + seconds)
    return run


def test_look_between_two_batches_spares_the_next_one_its_own(run):
    """As long as it is young enough itself."""
    look = Future()
    run.look_between(pytest.fail)  # too early
    run.wait(LOOK_INTERVAL * 0.6)
    run.look_between(lambda: look)
    look.set_result(True)
    run.wait(LOOK_INTERVAL * 0.6)
    assert not run.must_look()
    run.wait(LOOK_INTERVAL * 0.6)
    assert run.must_look()


@pytest.mark.parametrize("found", [False, OSError("no answer")])
def test_look_that_finds_another_table_or_fails_is_repeated_at_once(run, found):
    """Before the next row is encoded, however young the last good look is."""
    look = Future()
    run.wait(LOOK_INTERVAL * 0.6)
    run.look_between(lambda: look)
    look.set_exception(found) if found else look.set_result(found)
    assert run.must_look()


def test_look_without_an_answer_is_not_waited_for(run):
    """Nor is another one begun beside it. The next batch looks itself when that is due."""
    run.wait(LOOK_INTERVAL * 0.6)
    run.look_between(Future)
    run.look_between(pytest.fail)
    assert not run.must_look()
    run.wait(LOOK_INTERVAL * 0.6)
    assert run.must_look()
