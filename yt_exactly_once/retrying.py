"""From a `RetryPolicy` to attempts: the only module that uses tenacity.

What is retried is one whole attempt, never a single command: commands inside a transaction must not
be repeated on their own. Every retry is an event.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import tenacity

from yt_exactly_once.errors import RetriesExhaustedError, TransientError
from yt_exactly_once.observability import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from yt_exactly_once.config import RetryPolicy
    from yt_exactly_once.observability import Emitter

T = TypeVar("T")


def _proxy_of(error: BaseException | None) -> dict[str, Any]:
    """Return the address that did not answer, where the error knows it."""
    where = error.where if isinstance(error, TransientError) else {}
    return {name: where[name] for name in ("proxy",) if name in where}


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
        policy: limits and waits.
        emit: gets `retry.scheduled` before each wait.
        sleep: waits that many seconds.

    Raises:
        RetriesExhaustedError: the last attempt failed too. Its error is the cause, and the message lists
            all attempts.
        Exception: whatever else an attempt raises, at once.
    """
    story: list[str] = []
    began = time.monotonic()

    def numbered() -> T:
        number = len(story) + 1
        try:
            return attempt(number)
        except TransientError as error:
            after = time.monotonic() - began
            story.append(f"{number}) after {after:.1f} s {type(error).__name__}: {error.placed}")
            raise

    def announce(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        story[-1] += f", waited {state.upcoming_sleep:.1f} s"
        emit(
            Event.RETRY_SCHEDULED,
            attempt=state.attempt_number,
            wait=round(state.upcoming_sleep, 3),
            **_proxy_of(error),
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
        raise RetriesExhaustedError(
            f"Gave up after {len(story)} attempts: {'; '.join(story)}",
            remedy=error.remedy
            or "Start the query again once the cluster is healthy. Nothing is lost: Spark replays the batch",
            **error.where,
        ) from error
