"""The kill schedule: random, repeatable, and certain to happen."""

from __future__ import annotations

import pytest

from yt_exactly_once.demo.schedule import (
    BATCHES_PER_KILL,
    FEWEST_BATCHES,
    KINDS,
    MOST_COMMITS,
    Countdown,
    Kind,
    Moment,
    moments,
    rows_per_batch,
)
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.observability import Event


def test_same_seed_gives_the_same_moments():
    """A run can be repeated."""
    assert list(moments(9, seed=4)) == list(moments(9, seed=4))


def test_other_seed_gives_other_moments():
    """The moments are random."""
    assert list(moments(9, seed=4)) != list(moments(9, seed=5))


@pytest.mark.parametrize("seed", range(20))
def test_first_moments_are_of_every_kind(seed):
    """Few kills are enough to hit every phase of a batch."""
    planned = list(moments(len(KINDS) + 1, seed))
    assert len(planned) == len(KINDS) + 1
    assert {moment.kind for moment in planned[: len(KINDS)]} == set(KINDS)
    assert all(1 <= moment.commits <= MOST_COMMITS for moment in planned)
    assert all(0 <= moment.delay <= moment.kind.longest for moment in planned)


@pytest.mark.parametrize(("rows", "kills"), [(84_194, 5), (25, 5), (1_000, 20), (16, 0), (84, 20)])
def test_batches_are_small_enough_for_all_kills(rows, kills):
    """There are more batches than the lives before the last one can use up."""
    batches = -(-rows // rows_per_batch(rows, kills))
    assert batches >= FEWEST_BATCHES
    assert batches >= BATCHES_PER_KILL * kills


def test_too_few_rows_for_the_kills_are_refused():
    """A demo that could end before its kills is not begun."""
    with pytest.raises(ConfigError, match="5 kills need 24 batches"):
        rows_per_batch(23, kills=5)


def _heard(moment, events):
    countdown = Countdown(moment)
    return [countdown.starts_with(event) for event in events]


def test_countdown_waits_for_commits_and_then_for_its_event():
    """A life makes progress before it ends."""
    moment = Moment(Kind("", Event.BATCH_STARTED, 1.0), commits=1, delay=0.5)
    events = [Event.BATCH_STARTED, Event.BATCH_COMMITTED, Event.ROWS_WRITTEN, Event.BATCH_STARTED]
    assert _heard(moment, events) == [False, False, False, True]


def test_countdown_on_a_commit_starts_with_the_next_one():
    """The commits waited for come before the one that triggers."""
    moment = Moment(Kind("", Event.BATCH_COMMITTED, 0.0), commits=2, delay=0)
    assert _heard(moment, [Event.BATCH_COMMITTED] * 3) == [False, False, True]
