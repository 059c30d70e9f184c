"""Speed: a copy from a queue to an ordered table, in small and in large batches.

The rows are flat, or hold a struct and a list as well.

In every round each contender has one turn per size: a new driver goes on with the query, its first batch
counts apart, the next one warms up, and the others are measured. One driver runs at a time. Batches are
timed by Spark; CPU is what the kernel says of the processes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.processes import CLUSTER, PeakMemory, SparkProcesses, cpu_seconds, java_of
from benchmarks.spyt import work
from benchmarks.spyt.drivers import Driver
from benchmarks.spyt.trials import Contender, Stage, Trial
from yt_exactly_once.testing.child import session_members

SIZES = {1_000: 8, 100_000: 4}
"""Measured batches of a turn, by rows of a batch."""

PARTITIONS = 2
_APART = 2
"""Batches of a turn that are not measured: the first, and one more."""

_AFTER = 1
"""Batches behind those that are measured: a driver that ends takes the CPU of its workers with it."""

_SEED = 20


@dataclass(frozen=True)
class Turn:
    """One turn of one contender.

    Attributes:
        contender: who.
        rows: of a batch.
        round: in which round.
        start: seconds from the start of the process to the end of its first batch.
        first: seconds of the first batch.
        batches: seconds of each measured batch.
        apart: seconds from the end of one measured batch to the end of the next, on average.
        spark: CPU seconds of driver and tasks per batch.
        cluster: CPU seconds of the cluster per batch.
        load: processes that wanted a core in the last minute, as the kernel says.
        cpu: CPU seconds per batch by part; `spark` is all except the cluster's.
        jvm_bytes: peak resident memory of the JVM since it began.
        worker_bytes: the same of the largest Python worker; 0 where there is none.
        parts: seconds of each part of `start`, in order; the parts of the first batch are Spark's own.
    """

    contender: str
    rows: int
    round: int
    start: float
    first: float
    batches: list[float]
    apart: float
    spark: float
    cluster: float
    load: float
    cpu: dict[str, float]
    jvm_bytes: int
    worker_bytes: int
    parts: dict[str, float]


def measure(
    stage: Stage,
    contenders: Sequence[Contender],
    sizes: Sequence[int],
    rounds: int,
    keep: Callable[[dict[str, Any]], None],
    shape: str = "copy",
) -> None:
    """Measure, and give every turn to `keep` as JSON has it.

    Raises:
        RuntimeError: a target has other rows than the queue.
    """
    chance = random.Random(_SEED)
    types = work.TARGET_TYPES[shape]
    queues = {rows: work.Queue.create(stage.client, PARTITIONS, types=types) for rows in sizes}
    trials = {
        rows: [
            Trial(
                stage,
                who,
                shape,
                queue=queue.for_another(),
                limit=rows // PARTITIONS,
                tablets=PARTITIONS,
            )
            for who in contenders
        ]
        for rows, queue in queues.items()
    }
    for number in range(rounds):
        for rows, queue in queues.items():
            queue.append((_APART + SIZES[rows] + _AFTER) * rows // PARTITIONS)
            for trial in chance.sample(trials[rows], len(contenders)):
                keep(asdict(_turn(trial, rows, number)))
                _require_all_rows(trial)


def _require_all_rows(trial: Trial) -> None:
    """Check that nobody is fast because rows are missing, or writes some twice."""
    # Counters, since a query reads no more than a million rows.
    told = trial.stage.client.get_tablet_infos(trial.target, list(range(PARTITIONS)))
    found = sum(tablet["total_row_count"] for tablet in told["tablets"])
    expected = sum(trial.queues[0].counts)
    if found != expected:
        message = f"{trial.contender.name} has written {found} of {expected} rows"
        raise RuntimeError(message)


def _turn(trial: Trial, rows: int, number: int) -> Turn:
    batches, pids = SIZES[rows], trial.stage.cluster.proxy_pids
    with trial.driver(batches=_APART + batches + _AFTER) as driver:
        driver.wait(lambda: len(driver.batches()) >= _APART)
        processes = SparkProcesses(tuple(pids), driver.pid, java_of(driver.pid))
        spark, parts = cpu_seconds(session_members(driver.pid)), processes.cpu()
        driver.wait(lambda: len(driver.batches()) >= _APART + batches)
        spark = cpu_seconds(session_members(driver.pid)) - spark
        cpu = {part: (now - parts[part]) / batches for part, now in processes.cpu().items()}
        jvm = PeakMemory(processes.jvm).peak() or 0
        workers = [PeakMemory(pid).peak() or 0 for pid in processes.workers()]
        driver.wait(lambda: driver.last("idle", "failed"))
        told = driver.batches()
    if [batch["rows"] for batch in told] != [rows] * (_APART + batches + _AFTER):
        message = f"{trial.contender.name} has read other batches: {told}"
        raise RuntimeError(message)
    first, measured = told[0], told[_APART : _APART + batches]
    return Turn(
        trial.contender.name,
        rows,
        number,
        first["at"] - driver.began,
        _seconds(first),
        [_seconds(batch) for batch in measured],
        (measured[-1]["at"] - told[_APART - 1]["at"]) / batches,
        spark / batches,
        cpu[CLUSTER],
        os.getloadavg()[0],
        cpu,
        jvm,
        max(workers, default=0),
        _parts(driver, first),
    )


def _parts(driver: Driver, first: dict[str, Any]) -> dict[str, float]:
    """Take the way to the end of the first batch apart."""
    at = {event["event"]: event["at"] for event in reversed(driver.events)}
    names = {
        "session": "the process, the JVM and the session",
        "started": "`register_source`",
        "loaded": "`load()`",
        "running": "`start()`",
    }
    parts, before = {}, driver.began
    for event, name in names.items():
        parts[name], before = at[event] - before, at[event]
    parts["until the first batch is planned"] = first["at"] - _seconds(first) - before
    for name, took in first["ms"].items():
        if name != "triggerExecution":
            parts[f"first batch: {name}"] = took / 1000
    return parts


def _seconds(batch: dict[str, Any]) -> float:
    return float(batch["ms"]["triggerExecution"] / 1000)
