"""What the user gets: lines while the run goes on, a table at its end, and the JSON report."""

import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.chaos.round import Round, Verdict
from tests.chaos.tally import NUMBERS, Tally
from tests.chaos.weather import LATE_ERROR, WRITES

_LINE_SECONDS = 15.0


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Progress:
    """Prints how the run gets on, now and then."""

    def __init__(self, seconds: float = _LINE_SECONDS) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def __call__(self, running: Round) -> None:
        """Print a line if it is time."""
        if time.monotonic() - self._last < self._seconds:
            return
        self._last = time.monotonic()
        numbers = running.tally.numbers
        say(
            f"  {running.plan.mode.value} round {running.plan.number}, {running.elapsed:.0f} s: "
            f"{running.faults} faults, {running.incidents.kills} kills, {running.incidents.stops} "
            f"stops, {numbers['batches']} batches, {numbers['batch_rows']} rows, "
            f"{numbers['replays_skipped']} replays skipped"
        )


def by_mode(verdicts: Sequence[Verdict]) -> dict[str, Tally]:
    """Add the rounds of each mode up."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    for verdict in verdicts:
        tallies[verdict.plan.mode.value].add(verdict.tally)
    return dict(tallies)


def to_json(seed: int, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    tallies = by_mode(verdicts)
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    return {
        "seed": seed,
        "violated": any(verdict.violations for verdict in verdicts),
        "total": total.to_json(),
        "modes": {mode: tally.to_json() for mode, tally in tallies.items()},
        "rounds": [
            {
                "mode": verdict.plan.mode.value,
                "round": verdict.plan.number,
                "seed": verdict.plan.seed,
                "queries": [query.name for query in verdict.plan.queries],
                "violations": verdict.violations,
                "findings": {name: asdict(found) for name, found in verdict.findings.items()},
                "folder": verdict.folder,
                **verdict.tally.to_json(),
            }
            for verdict in verdicts
        ],
    }


def summary(report: dict[str, Any]) -> str:
    """Return the table for people."""
    columns = {**report["modes"], "total": report["total"]}
    width = max(len(name) for name in NUMBERS) + 2
    lines = ["".ljust(width) + "".join(name.rjust(15) for name in columns)]
    for name in (*NUMBERS, "faults_total"):
        cells = "".join(f"{column[name]:>15,.0f}" for column in columns.values())
        lines.append(name.replace("_", " ").ljust(width) + cells)
    lines.append("\ncarried out, then answered with an error:")
    for name in WRITES:
        met = (column["faults"].get(f"{LATE_ERROR} {name}", 0) for column in columns.values())
        lines.append(name.ljust(width) + "".join(f"{count:>15,}" for count in met))
    for title in ("faults", "retries", "failures"):
        lines.append(f"\n{title}:")
        lines += [f"{count:>9,}  {name}" for name, count in report["total"][title].items()]
    return "\n".join(lines)
