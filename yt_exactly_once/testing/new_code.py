"""New code on the batches of a real checkpoint: Spark replays each of them, and nothing is written."""

from __future__ import annotations

import pickle
import re
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.observability import Event
from yt_exactly_once.spark.compat.java import require_java
from yt_exactly_once.testing.capture import FOUND
from yt_exactly_once.testing.life import Life
from yt_exactly_once.testing.rehearsal import Judgement, Rehearsal, Rehearsed
from yt_exactly_once.testing.steps import Kind, Step
from yt_exactly_once.testing.trial import Job, Trial, pickled

_GONE = re.compile(
    r"DataLossError|CANNOT_LOAD_STATE_STORE|(?:delta|snapshot|zip|changelog)\b.* does not exist"
)
"""What is raised where rows were trimmed, or Spark has removed a state."""

_LOGS = ("offsets", "commits")
_NUMBERS = {
    **dict.fromkeys(_LOGS, re.compile(r"\.?(\d+)(?:\.crc)?$")),
    "state": re.compile(r"\.?(\d+)(?:_[^.]*)?\.(?:delta|snapshot|zip|changelog)(?:\.crc)?$"),
}
"""Files of a checkpoint that have the number of a batch, or of the batch that begins with a state."""


def rehearse(
    job: Job, checkpoint: str, *, batches: int = 5, conf: Mapping[str, str] | None = None
) -> Rehearsal:
    """Run the last batches of a query again with new code, write nothing, and compare the rows.

    A driver of its own copies the checkpoint. For each batch the copy is cut to what it was before, and the
    job is started on it. Spark then replays that batch: it reads the same ranges of the queues, with the
    state of that time. Every `TransactionalSink` computes its rows and compares them. It sends none, and the
    query ends before Spark or the source would move anything.

    The rows are compared with the digest that the ledger (`Target(..., digest=True)`) or the history
    (`history_path`) has of the batch. Without one they are compared with the rows of the target where these
    have the source of each row, or a key; or else only counted. With a key the same rows are no proof, since
    an earlier batch may have written them. Dead letters are counted. A target that the old code has written,
    and the new code does not, has other rows.

    What a function does besides calling sinks, it does here too. Writers with `format("yt")` are refused.

    Args:
        job: the new code, as for `survives`. `trial.checkpoint` is the copy.
        checkpoint: `checkpointLocation` of the query, as Spark takes it. The query may run meanwhile.
        batches: how many of the last finished batches are rehearsed.
        conf: of Spark.

    Raises:
        ConfigError: there is no such checkpoint, or the job calls no sink.
        ChildFailedError: the driver ended by itself, or hangs.
        JavaNotFoundError: there is no Java for Spark.
    """
    require_java()
    with tempfile.TemporaryDirectory(prefix="rehearse-", ignore_cleanup_errors=True) as path:
        folder = Path(path)
        job_file = folder / "job"
        job_file.write_bytes(pickled(job))
        original = folder / "original"
        with Life(folder, conf or {}, copies=(checkpoint, str(original))) as life:
            life.wait_until_ready()
            finished, unfinished = _logged(original, checkpoint)
            found: list[Rehearsed] = []
            mode, split_oversized = "", False
            for number in finished[-batches:]:
                name = f"t{uuid.uuid4().hex[:10]}"
                trial = Trial(name, folder / name)
                cut(original, Path(trial.checkpoint), number)
                life.run(trial, job_file, batch=number)
                some, mode, split_oversized = _found(life, trial, number)
                found += some
    return Rehearsal(found, mode, unfinished, split_oversized)


def cut(original: Path, copy: Path, batch: int) -> None:
    """Copy a checkpoint as it was when Spark had logged the offsets of a batch, and not finished it."""
    for file in original.rglob("*"):
        relative = file.relative_to(original)
        if file.is_dir() or _is_later(relative.parts[0], file.name, batch):
            continue
        (copy / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy / relative)


def _is_later(folder: str, name: str, batch: int) -> bool:
    """Return whether a file is newer than the offsets of a batch; the state before it has its number."""
    numbered = _NUMBERS.get(folder)
    found = numbered and numbered.match(name)
    return found is not None and int(found[1]) > (batch - 1 if folder == "commits" else batch)


def _logged(original: Path, checkpoint: str) -> tuple[list[int], int | None]:
    """Return the finished batches of a checkpoint, and the one that is not."""
    offsets, commits = (
        sorted(int(file.name) for file in (original / folder).glob("*") if file.name.isdigit())
        for folder in _LOGS
    )
    finished = [
        number for number in offsets if number in commits and (not number or number - 1 in offsets)
    ]
    if not finished:
        raise ConfigError(
            "There is no finished batch to rehearse",
            remedy="Pass the checkpointLocation of the query",
            path=checkpoint,
        )
    return finished, next((number for number in offsets if number > finished[-1]), None)


def _found(life: Life, trial: Trial, number: int) -> tuple[list[Rehearsed], str, bool]:
    file, error = trial.folder / FOUND, life.errors[trial.name]
    skipped = Step(Kind.EVENT, Event.SOURCE_ROWS_SKIPPED.value) in life.gate.steps
    if file.exists() and not skipped:
        found, mode, split_oversized = pickle.loads(file.read_bytes())  # noqa: S301 - our own driver has written it
        if not found:
            raise ConfigError(
                "The job has called no TransactionalSink for the batch, so nothing was compared",
                remedy="Give the query a foreachBatch function that calls one",
                batch=number,
            )
        return found, mode, split_oversized
    if skipped or _GONE.search(error):
        why = error or "The source has stepped over rows that were trimmed"
        return [Rehearsed(number, "", Judgement.UNREADABLE, reason=why)], "", False
    why = error or "The query has ended without the batch: it does not use trial.checkpoint"
    return [Rehearsed(number, "", Judgement.REFUSED, reason=why)], "", False
