"""A job under attack: one undisturbed run, one trial for each attack, and what is left of the rows."""

from __future__ import annotations

import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.compat.java import require_java
from yt_exactly_once.testing.attacks import EVERYWHERE, At, Attack, Manner, attacks_of
from yt_exactly_once.testing.life import HeldUpError, Life
from yt_exactly_once.testing.steps import AFTER_CALL
from yt_exactly_once.testing.trial import Job, Trial, pickled
from yt_exactly_once.testing.verdict import Attacked, Finding, Survival, compared

_SIDE_BY_SIDE = 3
"""Jobs that recover at a time."""


def survives(
    job: Job,
    *,
    rows: Callable[[Trial], Iterable[Any]],
    at: Iterable[At | float] = EVERYWHERE,
    batch: int = 1,
    prepare: Callable[[Trial], object] = lambda _: None,
    expected: Iterable[Any] | None = None,
    conf: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Survival:
    """Attack a job at every step of a batch, restart it, and compare its rows with those of a run in peace.

    Each attack is a trial with a checkpoint and a target of its own. The jobs of all trials run in one
    driver, a process with Spark in local mode, which ends by SIGKILL. Another driver then runs them to their
    end. The steps are those that a first trial takes, which nothing disturbs.

    It shows what these attacks do to this job with these rows, and not that no other attack can harm it.
    Requests are seen if Python sends them over HTTP; those of tasks are seen on Linux.

    Args:
        job: starts the query, and returns it. It keeps everything in its trial: the checkpoint is
            `trial.checkpoint`, and no other trial writes into its target. The query ends with its source: its
            trigger is `availableNow`. The function goes to the driver by value, with others of its module.
        rows: reads the target of a trial, in this process. It leaves out what differs from run to run, such
            as times.
        at: where to attack. A number is for seconds after the start of the call, each in a driver of its own.
        batch: number of the batch that is attacked.
        prepare: makes what the job needs, such as tables, before a trial begins; in this process.
        expected: the rows that must be there; default: those of the undisturbed run, so a job that is always
            wrong is not found.
        conf: of Spark.
        folder: where to keep checkpoints and logs; default: a temporary one.

    Raises:
        ConfigError: the job cannot be sent to a process, fails by itself, or does not run that batch.
        ChildFailedError: the driver ended by itself, or hangs.
        JavaNotFoundError: there is no Java for Spark.
    """
    require_java()
    with _folder(folder) as kept:
        path = kept / "job"
        path.write_bytes(pickled(job))
        campaign = _Campaign(kept, path, conf or {}, batch, prepare, rows)
        return campaign.run(list(at), None if expected is None else list(expected))


@dataclass
class _Campaign:
    """All trials of one job; the fields are as in `survives`.

    Attributes:
        job: file with the job.
        done: what was attacked, in which trial, and whether the attack was carried out.
        errors: of trials that have ended, by name.
    """

    folder: Path
    job: Path
    conf: Mapping[str, str]
    batch: int
    prepare: Callable[[Trial], object]
    rows: Callable[[Trial], Iterable[Any]]
    done: list[tuple[Attack, Trial, bool]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)

    def run(self, at: Sequence[At | float], expected: Sequence[Any] | None) -> Survival:
        """Attack, restart, compare."""
        with self._life() as life:
            found = self._undisturbed(life)
            known = found if expected is None else expected
            _require_right(found, known)
            waiting = deque(attacks_of(life.gate.steps, at))
            self._attack_all(life, waiting)
        while waiting:
            with self._life() as life:
                self._attack_all(life, waiting)
        self._recover()
        return Survival(len(known), [self._judged(*each, known) for each in self.done])

    @contextmanager
    def _life(self) -> Iterator[Life]:
        with Life(self.folder, self.conf) as life:
            yield life
        self.errors |= life.errors

    def _trial(self) -> Trial:
        name = f"t{uuid.uuid4().hex[:10]}"
        trial = Trial(name, self.folder / name)
        trial.folder.mkdir()
        self.prepare(trial)
        return trial

    def _undisturbed(self, life: Life) -> list[Any]:
        """Run the job without attack; return its rows."""
        trial = self._trial()
        life.run(trial, self.job, batch=self.batch)
        if error := life.errors[trial.name]:
            raise ConfigError(
                f"The job fails without any attack: {error}",
                remedy="Run the job by itself, and correct it",
            )
        if not trial.has_logged(self.batch):
            raise ConfigError(
                f"The job has no batch {self.batch}, so nothing was attacked",
                remedy="Give it more rows, and limit those of a batch (max_rows_per_partition, "
                "maxFilesPerTrigger), or choose another one with batch=. Use trial.checkpoint",
            )
        return list(self.rows(trial))

    def _attack_all(self, life: Life, waiting: deque[Attack]) -> None:
        """Carry out attacks in one life of the driver, as many as it bears."""
        while waiting:
            trial = self._trial()
            try:
                carried_out = life.run(trial, self.job, batch=self.batch, attack=waiting[0])
            except HeldUpError:
                return
            attack = waiting.popleft()
            self.done.append((attack, trial, carried_out))
            if attack.manner is Manner.KILL_LATER:
                # Nothing holds it, so the driver must die now.
                return

    def _recover(self) -> None:
        """Let every job that has not ended as it should run to its end, a few at a time."""
        waiting = [trial for _, trial, _ in self.done if self.errors.get(trial.name) != ""]
        if not waiting:
            return
        with self._life() as life:
            for trial in waiting:
                life.start(trial, self.job)
                life.wait(lambda: len(life.running) < _SIDE_BY_SIDE)
            life.wait(lambda: not life.running)

    def _judged(
        self, attack: Attack, trial: Trial, was_carried_out: bool, expected: Sequence[Any]
    ) -> Attacked:
        if error := self.errors[trial.name]:
            return Attacked(attack, error=error, was_carried_out=was_carried_out)
        judged = compared(attack, self.rows(trial), expected)
        return replace(judged, was_carried_out=was_carried_out)


def _require_right(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise `ConfigError` if there are no rows, or the undisturbed run has not left what must be there."""
    undisturbed = compared(Attack(Manner.KILL, AFTER_CALL), found, expected)
    if not expected:
        raise ConfigError("There are no rows to lose", remedy="Check `rows`: it returned none")
    if undisturbed.finding is not Finding.EXACT:
        raise ConfigError(
            "The job is wrong without any attack",
            remedy="Correct the job, or give other rows as expected=",
            details=str(undisturbed).splitlines()[1:],
        )


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="survives-", ignore_cleanup_errors=True) as path:
        yield Path(path)
