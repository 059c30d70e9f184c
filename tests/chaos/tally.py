"""Counts: of faults, of what the drivers told, and of what was found; for a round, a mode, a run."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.messages import ERROR, EVENT, QUERY_FAILED, QUERY_STARTED
from yt_exactly_once.observability import Event

NUMBERS = (
    "rounds",
    "seconds",
    "rows_in",
    "rows_out",
    "lost",
    "duplicated",
    "stale",
    "wrong",
    "misordered",
    "partial_batches_seen",
    "looks",
    "failed_looks",
    "kills",
    "stops",
    "drivers_started",
    "query_starts",
    "batches",
    "batch_rows",
    "replays_skipped",
    "attempts_repeated",
    "conflicts",
    "commits_unknown",
    "commits_unknown_found",
    "stuck",
)
"""Every number of a report, in its order."""

_OUR_ERROR = re.compile(r"yt_exactly_once\.errors\.(\w+)")
_SPARK_ERROR = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_SPARK_CAUSE = re.compile(r"(?:terminated with exception|SparkException): ([^.\n]*)")
_NAME_LENGTH = 80
_SPARK_WRAPPERS = frozenset({"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR"})


@dataclass
class Tally:
    """What has happened.

    Attributes:
        numbers: by name, see `NUMBERS`.
        faults: hits of fault rules, by action and command, and incidents by kind.
        retries: attempts repeated by the sinks, by the error that made them.
        failures: queries that ended with an error, by its name; they were started again.
    """

    numbers: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        for name in ("numbers", "faults", "retries", "failures"):
            getattr(self, name).update(getattr(other, name))

    def hear(self, event: dict[str, Any]) -> None:
        """Count what a driver told."""
        name, numbers = event[EVENT], self.numbers
        if name == Event.BATCH_COMMITTED:
            numbers["batches"] += 1
            numbers["batch_rows"] += event["rows"]
        elif name == Event.BATCH_SKIPPED:
            numbers["replays_skipped"] += event["reason"] == "replay"
        elif name == Event.RETRY_SCHEDULED:
            numbers["attempts_repeated"] += 1
            numbers["conflicts"] += event["reason"] == "ConflictError"
            self.retries[event["reason"]] += 1
        elif name == Event.COMMIT_OUTCOME_UNKNOWN:
            numbers["commits_unknown"] += 1
        elif name == Event.COMMIT_OUTCOME_RESOLVED:
            numbers["commits_unknown_found"] += 1
        elif name == QUERY_STARTED:
            numbers["query_starts"] += 1
        elif name == QUERY_FAILED:
            self.failures[error_name(event[ERROR])] += 1

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: round(self.numbers[name], 1) for name in NUMBERS},
            "faults_total": self.faults.total(),
            "faults": dict(self.faults.most_common()),
            "retries": dict(self.retries.most_common()),
            "failures": dict(self.failures.most_common()),
        }


def error_name(error: str) -> str:
    """Return the name of what a query failed with: our class, else Spark's, else its first words."""
    ours: list[str] = _OUR_ERROR.findall(error)
    if ours:
        return ours[0]
    theirs: list[str] = [
        name for name in _SPARK_ERROR.findall(error) if name not in _SPARK_WRAPPERS
    ]
    if theirs:
        return theirs[0]
    said: list[str] = _SPARK_CAUSE.findall(error)
    return (said or [error.strip().partition("\n")[0]])[0].strip()[:_NAME_LENGTH]
