"""Programs of Spark as a user starts them from a shell: run to their end, or killed at a request."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from tests.flows import columns, create_table
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.testing.child import kill_session

QUEUE, TARGET = "//home/shop/orders", "//home/app/result"

MOMENTS: list[dict[str, Any]] = [
    {"action": "lose_answer", "command": "commit_transaction"},
    {"action": "delay", "command": "commit_transaction", "seconds": 5.0},
    {"action": "lose_request", "command": "commit_transaction"},
    {"action": "lose_answer", "command": "insert_rows"},
    {"action": "delay", "command": "insert_rows", "seconds": 5.0},
    {"action": "lose_request", "command": "start_transaction"},
    {"action": "lose_answer", "command": "start_transaction"},
    {"action": "lose_request", "command": "pull_queue"},
    {"action": "lose_answer", "command": "pull_queue"},
    {"action": "lose_request", "command": "get"},
]
"""Faults at whose first request a program is killed. What is delayed happens after its death."""


@dataclass
class Program:
    """A program that copies a queue into a table.

    Attributes:
        command: below the folder of Spark, and its arguments.
        folder: in which it runs.
        script: what it reads from its input.
    """

    cluster: LocalCluster
    command: list[str]
    folder: Path
    script: str = ""

    def __post_init__(self) -> None:
        self.client = self.cluster.client()
        for path in (QUEUE, TARGET):
            create_table(self.client, path, columns({"customer": "utf8?", "amount": "int64?"}))

    def append(self, amounts: range) -> None:
        rows = [{"customer": f"c{amount % 3}", "amount": amount} for amount in amounts]
        self.client.insert_rows(QUEUE, rows)

    def amounts(self) -> list[int]:
        """Return what is in the table, in its order."""
        return [row["amount"] for row in self.client.select_rows(f"amount from [{TARGET}]")]

    def run(self, fault: dict[str, Any] | None = None) -> str:
        """Run it, to its end or to the first request of a fault; return what it prints."""
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_HOME": str(home),
            "SPARK_TESTING": "yes",  # any port for the server of pipelines, which is 15002 otherwise
            "YT_PROXY": self.cluster.proxy_urls[0],
        }
        log, given = self.folder / "printed", self.folder / "script"
        given.write_text(f"{self.script}\n")
        if fault is not None:
            self.cluster.inject_plan([{**fault, "count": None}])
        with log.open("wb") as output, given.open("rb") as source:
            process = subprocess.Popen(
                [home / "bin" / self.command[0], *self.command[1:]],
                cwd=self.folder,
                env=environment,
                stdin=source,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            while process.poll() is None and not any(self._hits()):
                time.sleep(0.05)
        finally:
            assert kill_session(process) == []
            self.cluster.clear_faults()
        printed = log.read_text(errors="replace")
        assert (process.returncode < 0) == (fault is not None), f"{fault}: {printed[-3_000:]}"
        return printed

    def _hits(self) -> Iterator[int]:
        return (rule["hits"] for rule in self.cluster.faults())


def require_exact_over_kills(
    program: Program, moments: list[dict[str, Any]], *, first: int = 0
) -> None:
    """Kill a program at each moment, with new rows in the queue before each.

    Args:
        program: copies the rows from an amount on.
    """
    for number, moment in enumerate(moments):
        program.append(range(20 * number, 20 * (number + 1)))
        program.run(moment)
        found = program.amounts()
        assert len(found) == len(set(found)), moment
    program.run()
    assert sorted(program.amounts()) == list(range(first, 20 * len(moments)))
