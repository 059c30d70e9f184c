"""Attempts: which errors are repeated, how often, and what is told about it."""

from datetime import timedelta

import pytest

from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.errors import ConflictError, FencedError, RetriesExhaustedError
from yt_exactly_once.observability import Event
from yt_exactly_once.retrying import run_attempts


class Recorder:
    def __init__(self):
        self.events = []

    def __call__(self, event, /, **fields):
        self.events.append((event, fields))


def failing(times, error):
    def attempt(number):
        if number <= times:
            raise error
        return number

    return attempt


def test_transient_error_is_repeated_and_every_retry_is_an_event():
    """Two conflicts cost two retries, told with attempt and reason."""
    record, waits = Recorder(), []
    result = run_attempts(
        failing(2, ConflictError("lost the race")), RetryPolicy(), record, sleep=waits.append
    )
    assert result == 3
    assert len(waits) == 2
    assert [event for event, _ in record.events] == [Event.RETRY_SCHEDULED] * 2
    assert record.events[0][1]["attempt"] == 1
    assert record.events[0][1]["reason"] == "ConflictError"


def test_fatal_error_is_raised_at_once():
    """What a person must decide is never repeated."""
    record = Recorder()
    with pytest.raises(FencedError):
        run_attempts(failing(1, FencedError("stop")), RetryPolicy(), record, sleep=lambda _: None)
    assert record.events == []


def test_last_failure_is_told_with_its_cause():
    """After the last attempt one error carries the whole story."""
    cause = ConflictError("lost the race", target="//t")
    with pytest.raises(RetriesExhaustedError, match=r"after 3 attempts.*lost the race") as raised:
        run_attempts(failing(9, cause), RetryPolicy(attempts=3), Recorder(), sleep=lambda _: None)
    assert raised.value.__cause__ is cause
    assert raised.value.where["target"] == "//t"


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
        run_attempts(failing(9, ConflictError("x")), policy, Recorder(), sleep=waits.append)
    assert waits == []
