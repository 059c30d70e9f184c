"""The gate: the parent's side of the steps. It counts those of the attacked batch, and holds or loses one."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections import Counter
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import TYPE_CHECKING

from yt_exactly_once.testing.attacks import Attack, Manner
from yt_exactly_once.testing.steps import Kind, Reply, Step

if TYPE_CHECKING:
    from yt_exactly_once.testing.trial import Trial


class Gate:
    """Answers the steps of one driver.

    One trial is attacked at a time, and all steps are taken for its own: those that were attacked before it
    are held, or have ended.

    Attributes:
        address: for the environment of the driver.
        steps: that the trial has taken in the attacked batch, and how often, in the order of the first time.
        arrived: whether the attacked step was reached.
        asked: how often any process has asked.
    """

    def __init__(self) -> None:
        key = secrets.token_bytes(16)
        self._listener = Listener(family="AF_UNIX", authkey=key, backlog=64)
        self.address = f"{self._listener.address} {key.hex()}"
        self._closed = False
        self.steps: Counter[Step] = Counter()
        self.arrived = threading.Event()
        self.asked = 0
        self._trial: Trial | None = None
        self._batch = -1
        self._attack: Attack | None = None
        self._ends: Counter[int] = Counter()
        self._held: list[Connection] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End; whatever is held passes."""
        self.release()
        self._closed = True
        # It may wait for a connection, and would for ever. This one says nothing.
        with socket.socket(socket.AF_UNIX) as waking:
            waking.connect(self._listener.address)
        self._thread.join()
        self._listener.close()

    def watch(self, trial: Trial | None, batch: int = -1, attack: Attack | None = None) -> None:
        """Count the steps of a batch of a trial from now on, and carry out the attack."""
        self.steps = Counter()
        self.arrived.clear()
        self._trial, self._batch, self._attack = trial, batch, attack

    def release(self) -> None:
        """Let all steps pass that are held, and all that come."""
        self.watch(None)
        held, self._held = self._held, []
        for connection in held:
            _answer(connection, Reply.PASS)

    def _serve(self) -> None:
        while not self._closed:
            # A process may be killed while it asks.
            with contextlib.suppress(EOFError, ConnectionError, AuthenticationError):
                connection = self._listener.accept()
                kind, text, *more = connection.recv()
                reply = self._reply(Step(Kind(kind), text), *more)
                if reply is None:
                    self._held.append(connection)
                else:
                    _answer(connection, reply)

    @property
    def holds(self) -> bool:
        """Whether it holds a step."""
        return bool(self._held)

    def _reply(self, step: Step, *more: int) -> Reply | None:
        self.asked += 1
        if self._trial is None:
            return Reply.PASS
        if step.kind is Kind.EVENT and more:
            is_attacked = more[0] == self._batch
        else:
            is_attacked = self._trial.runs(self._batch)
        if not is_attacked:
            return Reply.PASS
        self.steps[step] += 1
        attack = self._attack
        if attack and attack.manner is Manner.FAIL_TASKS:
            return self._end_of_task(*more) if step == attack.step else Reply.PASS
        if attack is None or (attack.step, attack.occurrence) != (step, self.steps[step]):
            return Reply.PASS
        self.arrived.set()
        return {Manner.KILL: None, Manner.LOSE: Reply.LOSE}.get(attack.manner, Reply.PASS)

    def _end_of_task(self, task: int, attempt: int) -> Reply:
        """Fail an attempt at the end of another of its Python processes than the attempt before.

        A task may have several, which end in the order in which they hand on rows.
        """
        self._ends[task] += 1
        if self._ends[task] - 1 != attempt:
            return Reply.PASS
        self.arrived.set()
        return Reply.LOSE


def _answer(connection: Connection, reply: Reply) -> None:
    with contextlib.suppress(OSError), connection:
        connection.send(str(reply))
