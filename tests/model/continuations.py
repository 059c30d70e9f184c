"""Ordinary code as a state machine: run it until it asks the world for something, and stop there.

The code under test is deterministic between its requests, so what it does next is a function of the
answers it has had. A continuation is that history, interned as a small number; resuming one runs the
program again from its start with the recorded answers, once per history, and remembers the outcome.
Nothing here knows what is asked or answered.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import tenacity.nap

NO_FAILURE = -1
"""No local call fails."""


class SuspendedError(BaseException):
    """Unwinds the program at a request that has no answer yet; no handler of `Exception` sees it."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a program does after the answers it has had.

    Attributes:
        local_calls: how many calls that touch nothing shared it has made since the last answer.
    """

    local_calls: int


@dataclass(frozen=True)
class Asking(Outcome):
    """The program waits for an answer."""

    request: Any


@dataclass(frozen=True)
class Returned(Outcome):
    """The program has ended well.

    Attributes:
        value: what it returned.
    """

    value: Any = None


@dataclass(frozen=True)
class Raised(Outcome):
    """The program has ended with an error."""

    error: Exception


class Script:
    """What a program talks to instead of the world: recorded answers, then a stop.

    Attributes:
        failing: which of the local calls after the last answer fails, and how; see `Snapshot`.
    """

    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers
        self._stopped = False
        self.failing = NO_FAILURE
        self.requests: list[Any] = []
        self.local_calls = 0

    def ask(self, request: Any) -> Any:
        """Return the recorded answer, or stop the program.

        Raises:
            SuspendedError: there is none yet, or the program was stopped before.
        """
        if self._stopped:
            raise SuspendedError
        self.requests.append(request)
        if len(self.requests) > len(self._answers):
            self._stopped = True
            raise SuspendedError
        self.local_calls = 0
        answer = self._answers[len(self.requests) - 1]
        self.failing = getattr(answer, "failing", NO_FAILURE)
        return answer

    def local(self) -> int:
        """Count a call that touches nothing shared, and return its number since the last answer."""
        if self._stopped:
            raise SuspendedError
        self.local_calls += 1
        return self.local_calls - 1


@contextmanager
def no_waiting() -> Iterator[None]:
    """Let retries follow each other at once: in the model time passes by what happens."""
    instant = SimpleNamespace(sleep=lambda _seconds: None)
    with mock.patch.object(tenacity.nap, "time", instant):
        yield


def always(value: Any) -> Callable[..., Any]:
    """Return a function that returns this; a mock would cost more than the program that calls it."""
    return lambda *_, **__: value


class Continuations:
    """All histories of all programs seen so far.

    Args:
        program: runs the program of a key against a script.
    """

    def __init__(self, program: Callable[[Any, Script], Any]) -> None:
        self._program = program
        self._roots: dict[Hashable, int] = {}
        self._children: dict[tuple[int, Hashable], int] = {}
        self._origin: list[tuple[Hashable, int | None, Any]] = []
        self._outcomes: list[Outcome] = []

    @property
    def executions(self) -> int:
        """How often the code under test was run."""
        return len(self._outcomes)

    def start(self, key: Hashable) -> int:
        """Return the continuation of a program that has had no answer."""
        found = self._roots.get(key)
        if found is None:
            found = self._roots[key] = self._add(key, None, None)
        return found

    def resume(self, continuation: int, answer: Hashable) -> int:
        """Return the continuation after one more answer."""
        found = self._children.get((continuation, answer))
        if found is None:
            key = self._origin[continuation][0]
            found = self._children[continuation, answer] = self._add(key, continuation, answer)
        return found

    def key(self, continuation: int) -> Hashable:
        """Return the key of the program it belongs to."""
        return self._origin[continuation][0]

    def outcome(self, continuation: int) -> Outcome:
        """Return what the program does there."""
        return self._outcomes[continuation]

    def _add(self, key: Hashable, parent: int | None, answer: Any) -> int:
        self._origin.append((key, parent, answer))
        self._outcomes.append(self._run(len(self._origin) - 1))
        return len(self._origin) - 1

    def _run(self, continuation: int) -> Outcome:
        key, history = self._origin[continuation][0], self._history(continuation)
        answers = [self._origin[node][2] for node in history]
        script = Script(answers)
        outcome: Outcome
        try:
            value = self._program(key, script)
        except SuspendedError:
            outcome = Asking(script.requests[-1], local_calls=script.local_calls)
        except Exception as error:  # noqa: BLE001 - whatever it raises is its outcome
            outcome = Raised(error.with_traceback(None), local_calls=script.local_calls)
        else:
            outcome = Returned(local_calls=script.local_calls, value=value)
        self._require_same_requests(history, script)
        return outcome

    def _history(self, continuation: int) -> list[int]:
        nodes = []
        node: int | None = continuation
        while node is not None and self._origin[node][1] is not None:
            nodes.append(node)
            node = self._origin[node][1]
        return nodes[::-1]

    def _require_same_requests(self, history: list[int], script: Script) -> None:
        """Check that the program is deterministic, without which a history says nothing."""
        for number, node in enumerate(history):
            parent = self._origin[node][1]
            assert parent is not None
            before = self._outcomes[parent]
            assert isinstance(before, Asking)
            if number >= len(script.requests) or script.requests[number] != before.request:
                message = f"Run again with the same answers, the program asked {script.requests}"
                raise AssertionError(message)
