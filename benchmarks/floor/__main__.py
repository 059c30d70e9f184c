"""Measure what one setting of Spark gives a query whose batches have one row.

Each setting has a driver of its own, and the drivers of a round run one after the other, in changing order.
The sink is Spark's noop sink: what is left is Spark's own cost of a batch.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.arguments import positive
from benchmarks.page import put, rig

_JAVA = "spark.driver.extraJavaOptions"
_FILES = "spark.sql.streaming.checkpointFileManagerClass"

SETTINGS: dict[str, dict[str, str]] = {
    "as installed": {},
    "`spark.sql.codegen.wholeStage=false`": {"spark.sql.codegen.wholeStage": "false"},
    "`spark.sql.streaming.checkpoint.fileChecksum.enabled=false`": {
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false"
    },
    f"`{_FILES}=…FileSystemBasedCheckpointFileManager`": {
        _FILES: "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    },
    "`spark.sql.adaptive.enabled=false`": {"spark.sql.adaptive.enabled": "false"},
    "both of the checkpoint": {
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        _FILES: "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager",
    },
    "`-XX:TieredStopAtLevel=1`": {_JAVA: "-XX:TieredStopAtLevel=1"},
    "`-XX:+UseSerialGC`": {_JAVA: "-XX:+UseSerialGC"},
    "`-Djdk.lang.Process.launchMechanism=VFORK`": {
        _JAVA: "-Djdk.lang.Process.launchMechanism=VFORK"
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--batches", type=positive, default=60, help="that count, of each driver")
    parser.add_argument("--json", type=Path, help="file for what was measured")
    parser.add_argument("--page", action="store_true", help="write the table of the documentation")
    options = parser.parse_args(arguments)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SETTINGS}
    for _ in range(options.rounds):
        for name in random.sample(list(SETTINGS), len(SETTINGS)):
            found[name].append(_run(SETTINGS[name], options.batches))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    lines = list(_table(found))
    print("\n".join(lines))
    if options.page:
        put("floor", [*lines, "", f"Rounds: {options.rounds}. {rig()}."])
    return 0


def _table(found: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    yield "| setting | batch, ms | ratio (range) | CPU of the JVM, ms | ratio (range) |"
    yield "|---|---|---|---|---|"
    for name, rounds in found.items():
        cells = [name]
        for measure in ("seconds", "cpu"):
            ratios = [
                one[measure] / base[measure]
                for one, base in zip(rounds, found["as installed"], strict=True)
            ]
            cells += [
                f"{statistics.median(one[measure] for one in rounds) * 1000:.0f}",
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            ]
        yield f"| {' | '.join(cells)} |"


def _run(settings: dict[str, str], batches: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.floor.job", json.dumps(settings), str(batches)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    told = json.loads(done.stdout.splitlines()[-1])
    return {"seconds": statistics.median(told["seconds"]), "cpu": told["cpu"]}


if __name__ == "__main__":
    raise SystemExit(main())
