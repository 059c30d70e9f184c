"""From a `RetryPolicy` to attempts: the only module that uses tenacity.

What is retried is one whole attempt, never a single command: commands inside a transaction must not
be repeated on their own. Every retry is an event.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import tenacity

from yt_exactly_once.errors import RetriesExhaustedError, TransientError
from yt_exactly_once.observability import Emitter, Event

if TYPE_CHECKING:
    from yt_exactly_once.config import RetryPolicy

T = TypeVar("T")

_ID = re.compile(r"\b[0-9a-f]+(?:-[0-9a-f]+){3}\b")


def _causes(story: Sequence[TransientError]) -> tuple[str, list[str]]:
    """Return the only cause, or a line for each with how often it came; ids that differ make no other one."""
    known: dict[str, list[TransientError]] = {}
    for error in story:
        known.setdefault(f"{type(error).__name__}: {_ID.sub('', error.what)}", []).append(error)
    if len(known) == 1:
        # Its place is that of the whole.
        return f": {type(story[-1]).__name__}: {story[-1].what}", []
    return "", [
        f"{len(errors)} times {type(errors[-1]).__name__}: {errors[-1].placed}"
        for errors in known.values()
    ]


def run_attempts(
    attempt: Callable[[int], T],
    policy: RetryPolicy,
    emit: Emitter,
    *,
    sleep: Callable[[float], None] = tenacity.nap.sleep,
) -> T:
    """Call `attempt` with 1, 2, ... until it returns or the policy gives up.

    Args:
        attempt: gets the number of the attempt; raises `TransientError` to be called again.
        emit: gets `retry.scheduled` before each wait.
        sleep: waits that many seconds.

    Raises:
        RetriesExhaustedError: the last attempt failed too. Its error is the cause, and the message lists
            each cause.
        Exception: whatever else an attempt raises, at once.
    """
    story: list[TransientError] = []
    began = time.monotonic()

    def numbered() -> T:
        number = len(story) + 1
        try:
            return attempt(number)
        except TransientError as error:
            story.append(error)
            raise

    def announce(state: tenacity.RetryCallState) -> None:
        error = story[-1]
        emit(
            Event.RETRY_SCHEDULED,
            attempt=state.attempt_number,
            wait=round(state.upcoming_sleep, 3),
            # The address that did not answer, where the error knows it.
            **{name: error.where[name] for name in ("proxy",) if name in error.where},
            reason=type(error).__name__,
            error=str(error),
        )

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(TransientError),
        stop=tenacity.stop_after_attempt(policy.attempts)
        | tenacity.stop_before_delay(policy.deadline.total_seconds()),
        wait=tenacity.wait_random_exponential(
            multiplier=policy.first_wait.total_seconds(), max=policy.max_wait.total_seconds()
        ),
        before_sleep=announce,
        sleep=sleep,
        reraise=True,
    )
    try:
        return retrying(numbered)
    except TransientError as error:
        remedies = [
            *(one.remedy for one in reversed(story) if one.remedy),
            "Start the query again once the cluster is healthy. Nothing is lost: Spark replays the batch",
        ]
        cause, causes = _causes(story)
        raise RetriesExhaustedError(
            f"Gave up after {len(story)} attempts in {time.monotonic() - began:.1f} s{cause}",
            remedy=remedies[0],
            details=causes,
            **error.where,
        ) from error
