"""`doctor`: what is wrong or will be, with the command that repairs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from yt_exactly_once.cli import options
from yt_exactly_once.config import ROWS_PER_TABLET_LIMIT, DeliveryMode

if TYPE_CHECKING:
    from rich.text import Text

    from yt_exactly_once.operations.doctor.subject import Finding, Level

_COLOURS = {
    "ok": "green",
    "note": "cyan",
    "warning": "yellow",
    "problem": "bold red",
    "unknown": "magenta",
}


@click.command("doctor")
@options.several("--queue queues PATH", "Queue")
@options.option(
    "--consumer consumers PATH",
    "Consumer: one for all queues, or one per queue in their order.",
    multiple=True,
)
@options.several("--target targets PATH", "Target")
@options.mode_option("Delivery mode of the sink.")
@options.option("--ledger PATH", "ledger_path of the sink.  [default: beside the target]")
@options.option("--producer PATH", "producer_path of the sink.  [default: beside the target]")
@options.option("--dead-letter PATH", "dead_letter_path of the sink.")
@options.option(
    "--checkpoint LOCATION",
    "checkpointLocation of the query: a path, or a URL of hdfs:, s3a: or yt:.",
)
@options.option(
    "--schema TEXT",
    "Columns that the sink writes, compared with each target: the JSON of schema.json(), Spark's DDL such as "
    "'id bigint, tags array<string>', or @FILE with either.",
)
@options.option("--delete-marker COLUMN", "delete_marker of the target: no table has that column.")
@options.changes_options
@options.option("--max-rows-per-partition N", "The option of the source.", type=int)
@options.option(
    "--rows-per-tablet N", "rows_per_tablet_limit of the sink.", default=ROWS_PER_TABLET_LIMIT
)
@options.option(
    "--conf settings NAME=VALUE",
    "A setting of Spark, as for spark-submit; may be repeated. It comes before those of files.",
    multiple=True,
)
@options.file_option(
    "--spark-defaults FILE",
    "Settings of Spark.  [default: spark-defaults.conf of SPARK_CONF_DIR or SPARK_HOME]",
)
@options.option(
    "--spark-ui URL",
    "The UI of a running driver: its settings, and what failed tasks say of the executors' Python.",
)
@options.cluster_options
def command(
    queues: tuple[str, ...],
    consumers: tuple[str, ...],
    targets: tuple[str, ...],
    mode: str,
    schema: str | None,
    settings: tuple[str, ...],
    spark_defaults: Path | None,
    spark_ui: str | None,
    cluster: options.ClusterOptions,
    **known: Any,
) -> bool:
    """Find what keeps a query from running or from keeping its promise.

    For the time before the first start, and for when something is wrong. It looks at this machine, the
    proxies, permissions, tables, queues, consumers, the ledger, the checkpoint, tablet cell bundles,
    accounts, clocks and Spark's settings. Each finding says what is wrong, why it matters, and which command
    repairs it. It changes nothing. The exit code is 1 if there is a problem.
    """
    from yt_exactly_once.operations.creating import parse_schema  # noqa: PLC0415 - needs the client
    from yt_exactly_once.operations.doctor import driver  # noqa: PLC0415 - needs the client
    from yt_exactly_once.operations.doctor.run import examine  # noqa: PLC0415
    from yt_exactly_once.operations.doctor.subject import Level, Queue, Subject  # noqa: PLC0415

    if len(consumers) not in {0, 1, len(queues)}:
        raise click.UsageError("Give one --consumer for all queues, or one for each --queue")
    readers = consumers if len(consumers) > 1 else (consumers or (None,)) * len(queues)
    conf: dict[str, str] = {}
    failures: tuple[str, ...] = ()
    origins = []
    file = spark_defaults or driver.default_file()
    if file is not None:
        conf |= driver.from_file(file)
        origins.append(str(file))
    if spark_ui is not None:
        shown, failures = driver.from_ui(spark_ui)
        conf |= shown
        origins.append(spark_ui)
    if settings:
        conf |= driver.from_texts(settings)
        origins.append("--conf")
    subject = Subject(
        cluster=cluster.config(),
        queues=tuple(map(Queue, queues, readers)),
        targets=targets,
        mode=DeliveryMode(mode),
        frame=None if schema is None else parse_schema(schema),
        conf=conf,
        conf_origin=", ".join(origins),
        failures=failures,
        **known,
    )
    found: list[Finding] = []
    for finding in examine(subject):
        found.append(finding)
        cluster.say(*_lines(finding))
    problems = sum(finding.level is Level.PROBLEM for finding in found)
    cluster.answer(
        {"problems": problems, "findings": [asdict(finding) for finding in found]},
        f"{_sum(found, Level.PROBLEM)}, {_sum(found, Level.WARNING)}",
    )
    return problems > 0


def _sum(found: list[Finding], level: Level) -> str:
    """Return how many findings of a level there are, and of what: the last line is read first."""
    checks = [finding.check for finding in found if finding.level is level]
    named = f" ({', '.join(dict.fromkeys(checks))})" if checks else ""
    return f"{level.value}s: {len(checks)}{named}"


def _lines(finding: Finding) -> Iterator[Text]:
    from rich.text import Text  # noqa: PLC0415 - the command has no other use for it

    line = Text(f"{finding.level.value:8}", style=_COLOURS[finding.level.value])
    yield line.append(f"{finding.check}: {finding.what}", style="default")
    for label, text in (("why", finding.why), ("repair", finding.repair)):
        if text:
            yield Text(f"          {label}: {text}", style="dim")
    yield from (Text(f"          {text}", style="dim") for text in finding.details)
