"""Attempts: which errors are repeated, how often, and what is told about it."""

import re
import time
from datetime import timedelta

import pytest

from tests.notes import Told
from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.errors import (
    ConflictError,
    FencedError,
    RetriesExhaustedError,
    TransactionLostError,
)
from yt_exactly_once.observability import Event
from yt_exactly_once.retrying import run_attempts


def failing(times, error):
    def attempt(number):
        if number <= times:
            raise error
        return number

    return attempt


def test_transient_error_is_repeated_and_every_retry_is_an_event():
    """Two conflicts cost two retries, told with attempt and reason."""
    record, waits = Told(), []
    result = run_attempts(
        failing(2, ConflictError("lost the race")), RetryPolicy(), record, sleep=waits.append
    )
    assert result == 3
    assert len(waits) == 2
    assert [event for event, _ in record] == [Event.RETRY_SCHEDULED] * 2
    assert record[0][1]["attempt"] == 1
    assert record[0][1]["reason"] == "ConflictError"


def test_fatal_error_is_raised_at_once():
    """What a person must decide is never repeated."""
    record = Told()
    with pytest.raises(FencedError):
        run_attempts(failing(1, FencedError("stop")), RetryPolicy(), record, sleep=lambda _: None)
    assert record == []


def test_the_last_error_tells_the_whole_story():
    """Each cause once, with how often it came and where, and its remedy; the last one is the cause."""
    lost = TransactionLostError(
        "The lease of 1-2-3-4 expired", transaction="1-2-3-4", remedy="Hurry"
    )
    cause = ConflictError("Lost the race", target="//t")
    errors = iter([lost, cause, cause])

    def attempt(_number):
        raise next(errors)

    record, waits = Told(), []
    with pytest.raises(RetriesExhaustedError) as raised:
        run_attempts(attempt, RetryPolicy(attempts=3), record, sleep=waits.append)
    error = raised.value
    assert error.__cause__ is cause
    assert error.where == {"target": "//t"}
    assert re.sub(r"in \d\.\d s", "in T", error.what) == ("Gave up after 3 attempts in T")
    assert error.remedy == "Hurry"
    assert error.details == (
        "1 times TransactionLostError: The lease of 1-2-3-4 expired [transaction=1-2-3-4]",
        "2 times ConflictError: Lost the race [target=//t]",
    )
    assert len(record) == 2


def test_waits_are_random_and_grow_up_to_their_limit():
    """Attempts of many tasks that failed together must not come back together."""
    policy = RetryPolicy(
        attempts=40, first_wait=timedelta(milliseconds=100), max_wait=timedelta(seconds=1)
    )
    waits = []
    with pytest.raises(RetriesExhaustedError):
        run_attempts(failing(99, ConflictError("x")), policy, Told(), sleep=waits.append)
    limits = [min(0.1 * 2**number, 1.0) for number in range(39)]
    assert all(0 <= wait <= limit for wait, limit in zip(waits, limits, strict=True))
    assert len(set(waits)) == 39
    assert max(waits) > 0.5


def test_no_attempt_begins_after_the_deadline():
    """A wait that would end too late is not begun."""
    policy = RetryPolicy(
        attempts=100,
        deadline=timedelta(0),
        first_wait=timedelta(hours=1),
        max_wait=timedelta(hours=1),
    )
    waits = []
    with pytest.raises(RetriesExhaustedError, match="after 1 attempts"):
        run_attempts(failing(9, ConflictError("x")), policy, Told(), sleep=waits.append)
    assert waits == []


def test_the_deadline_counts_the_time_that_attempts_take(monkeypatch):
    """Three attempts of ten seconds are the most that twenty-five seconds allow to be begun."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def attempt(_number):
        clock[0] += 10
        raise ConflictError("slow")

    policy = RetryPolicy(deadline=timedelta(seconds=25))
    with pytest.raises(RetriesExhaustedError, match=r"after 3 attempts in 30\.0 s"):
        run_attempts(attempt, policy, Told(), sleep=lambda _: None)
