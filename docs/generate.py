"""Writes the reference pages that follow from the code; run it after changing what they show.

Usage: `python docs/generate.py` writes the pages, `python docs/generate.py --check` only compares and
exits with 1 when one is out of date.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from yt_exactly_once import errors
from yt_exactly_once.commit.crash_points import CrashPoint
from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.local import commands as _commands  # noqa: F401 - fills the registry
from yt_exactly_once.local.registry import REGISTRY
from yt_exactly_once.spark.create_table import create_table
from yt_exactly_once.spark.sink import TransactionalSink
from yt_exactly_once.spark.source_options import SourceOptions
from yt_exactly_once.ytsaurus.failures import FAILURES, Failure

DOCS = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py; change the code, not this page. -->\n\n"


def pages() -> dict[Path, str]:
    """Return every generated page."""
    return {
        DOCS / "reference/local-commands.md": NOTE + local_commands(),
        DOCS / "reference/errors.md": NOTE + error_tree(),
        DOCS / "reference/configuration.md": NOTE + configuration(),
        DOCS / "reference/retries.md": NOTE + retries(),
        DOCS / "explanation/failure-table.md": NOTE + failure_table(),
    }


def local_commands() -> str:
    """One row per command of the embedded cluster."""
    rows = [
        f"| `{command.name}` | {command.input_type} | {command.output_type} | {command.support} "
        f"| {command.note} |"
        for command in sorted(REGISTRY.values(), key=lambda command: command.name)
    ]
    return "\n".join(
        [
            "# Commands of the embedded cluster",
            "",
            "A command that is not listed answers with an error envelope: it is not registered.",
            "",
            "| command | input | output | support | what is missing |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def error_tree() -> str:
    """Every error with its place in the tree and its meaning."""
    lines = [
        "# Errors",
        "",
        (
            "Every error derives from `ExactlyOnceError`. The text names what happened, where, and what to "
            "do. `TransientError` and what derives from it is retried; everything else stops the query, and "
            "the batch is replayed when the query is started again."
        ),
        "",
    ]

    def add(kind: type[BaseException], depth: int) -> None:
        doc = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
        lines.append(f"{'  ' * depth}- `{kind.__name__}`: {doc}")
        for child in kind.__subclasses__():
            if child.__module__ == errors.__name__:
                add(child, depth + 1)

    add(errors.ExactlyOnceError, 0)
    return "\n".join([*lines, ""])


def configuration() -> str:
    """The options of sink, source and `create_table`, from their docstrings."""
    return "\n".join(
        [
            "# Options",
            "",
            "## `TransactionalSink`",
            "",
            "```text",
            inspect.getdoc(TransactionalSink) or "",
            "```",
            "",
            '## `spark.readStream.format("yt")`',
            "",
            "```text",
            inspect.getdoc(SourceOptions) or "",
            "```",
            "",
            "## `create_table`",
            "",
            "Also as a command: `yt-exactly-once create-table --help`.",
            "",
            "```text",
            inspect.getdoc(create_table) or "",
            "```",
            "",
        ]
    )


def retries() -> str:
    """Which failure leads to what."""
    return "\n".join(
        [
            "# Failures and retries",
            "",
            (
                "What is repeated is a whole attempt (begin, check, write, advance, record, commit), a read, "
                "or the request of a task; never a single command of a transaction. A commit whose answer "
                "does not tell its fate is looked up in the ledger, and counts only when the entry names its "
                "transaction. The table decides how soon a batch is there, never whether it is there once: "
                "every attempt checks the ledger first, and all write the same ledger row."
            ),
            "",
            (
                "The first row that fits an error decides. Codes are searched in the whole error, since "
                "errors of a commit arrive nested."
            ),
            "",
            "| what has happened | codes | we do | at a commit we do | error |",
            "|---|---|---|---|---|",
            *(
                f"| {failure.meaning} | {_codes(failure)} | {failure.decision} "
                f"| {failure.decision_at_commit} | `{failure.error.__name__}` |"
                for failure in FAILURES
            ),
            "",
            "Two decisions follow from where an error happens and not from its code:",
            "",
            (
                "- A consumer that is not registered stops the query when it is checked, once per run; "
                "inside a transaction, where that check has passed, it leads to a new attempt, since proxies "
                "hear of a registration late."
            ),
            (
                "- An error that stops a task fails the task. Spark runs it again as often as "
                "`spark.task.maxFailures` says, and then ends the query."
            ),
            "",
            (
                "Attempts follow each other after a random wait, at most `first_wait` at first and twice as "
                "long each time, up to `max_wait`. None is begun when its wait would end after `deadline`. "
                "Every wait is an event `retry.scheduled`. After the last attempt comes one "
                "`RetriesExhaustedError` that tells of each attempt what failed and when, and how long was "
                "waited after it. Spark then ends the query, and replays the batch when it is started again."
            ),
            "",
            "```text",
            inspect.getdoc(RetryPolicy) or "",
            "```",
            "",
        ]
    )


def _codes(failure: Failure) -> str:
    return ", ".join(f"{code} {name}" for code, name in sorted(failure.codes.items()))


def failure_table() -> str:
    """What every crash of the driver leaves behind, and what the restart does with it."""
    rows = [
        f"| `{point.name}` | {point.value.moment} | {point.value.cluster_holds} "
        f"| {point.value.spark_replays} | {point.value.we_do} |"
        for point in CrashPoint
    ]
    return "\n".join(
        [
            "# What happens at every crash",
            "",
            (
                "In transactional mode, for a driver that dies within batch N. Every row is a crash test "
                "(`tests/crash/test_crash_points.py`) that kills a real driver with SIGKILL at that point."
            ),
            "",
            "| crash point | the driver dies | the cluster holds | Spark replays | we do |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> int:
    """Write the pages, or compare them."""
    stale = [
        path
        for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv:
        for path in stale:
            print(f"out of date: {path.relative_to(DOCS)}")  # noqa: T201 - a command line prints
        return int(bool(stale))
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages()[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
