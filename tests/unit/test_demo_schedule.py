"""The kill schedule: random, repeatable, and certain to happen."""

import pytest

from yt_exactly_once.demo import schedule
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.observability import Event


def test_seed_decides_the_moments():
    """A run can be repeated."""
    assert (
        list(schedule.moments(9, seed=4))
        == list(schedule.moments(9, seed=4))
        != list(schedule.moments(9, seed=5))
    )


@pytest.mark.parametrize("seed", range(20))
def test_first_moments_are_of_every_kind(seed):
    """Few kills are enough to hit every phase of a batch."""
    planned = list(schedule.moments(len(schedule.KINDS) + 1, seed))
    assert len(planned) == len(schedule.KINDS) + 1
    assert {moment.kind for moment in planned[: len(schedule.KINDS)]} == set(schedule.KINDS)
    assert all(1 <= moment.commits <= schedule.MOST_COMMITS for moment in planned)
    assert all(0 <= moment.delay <= moment.kind.longest for moment in planned)


@pytest.mark.parametrize(("rows", "kills"), [(84_194, 5), (30, 5), (1_000, 20), (16, 0), (105, 20)])
def test_batches_are_small_enough_for_all_kills(rows, kills):
    """More than the lives before the last one can use up, with a batch of each query unheard."""
    batches = -(-rows // schedule.rows_per_batch(rows, kills))
    assert batches >= schedule.FEWEST_BATCHES
    assert batches >= schedule.BATCHES_PER_KILL * kills
    assert not kills or kills * (schedule.LAST_CALL + 2) < 2 * batches


def test_too_few_rows_for_the_kills_are_refused():
    """A demo that could end before its kills is not begun."""
    with pytest.raises(ConfigError, match="5 kills need 18 batches"):
        schedule.rows_per_batch(17, kills=5)


def _dues(moment, events):
    """Return when the kill is due after each event; they come a second apart, from 100 on."""
    countdown = schedule.Countdown(moment)
    dues = []
    for second, event in enumerate(events):
        countdown.notice(event, 100.0 + second)
        dues.append(countdown.due)
    return dues


def test_countdown_waits_for_commits_and_then_for_its_event():
    """A life makes progress before it ends, and a countdown that runs is not begun anew."""
    moment = schedule.Moment(schedule.Kind("", Event.BATCH_STARTED, 9.0), commits=1, delay=5.0)
    events = [Event.BATCH_STARTED, Event.BATCH_COMMITTED, Event.ROWS_WRITTEN]
    assert _dues(moment, [*events, *[Event.BATCH_STARTED] * 2]) == [None, None, None, 108.0, 108.0]
    assert _dues(moment, [Event.BATCH_STARTED] * 5) == [None] * 5


def test_countdown_on_a_commit_starts_with_the_next_one():
    """The commits waited for come before the one that triggers."""
    moment = schedule.Moment(schedule.Kind("", Event.BATCH_COMMITTED, 0.0), commits=2, delay=0.0)
    assert _dues(moment, [Event.BATCH_COMMITTED] * 3) == [None, None, 102.0]


def test_life_ends_at_the_last_call_when_its_moment_is_too_far_off():
    """Commits during the countdown count too, so that work is left for the next life."""
    moment = schedule.Moment(schedule.Kind("", Event.BATCH_COMMITTED, 99.0), commits=1, delay=99.0)
    dues = _dues(moment, [Event.BATCH_COMMITTED] * schedule.LAST_CALL)
    assert dues == [None, *[200.0] * (schedule.LAST_CALL - 2), 100.0 + schedule.LAST_CALL - 1]
