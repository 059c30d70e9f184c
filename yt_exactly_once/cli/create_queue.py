"""`create-queue`: a queue for the rows of a DataFrame, or like another table."""

from __future__ import annotations

from typing import Any

import click

from yt_exactly_once.cli.options import (
    ClusterOptions,
    cluster_options,
    json_option,
    require_one_schema,
    schema_options,
)
from yt_exactly_once.cli.output import print_json


@click.command("create-queue")
@click.argument("path")
@schema_options
@click.option("--partitions", type=int, default=1, metavar="N", help="Number of partitions.")
@click.option(
    "--auto-trim", is_flag=True, help="Let the cluster trim what all vital consumers have read."
)
@cluster_options
@json_option
def command(
    path: str,
    like: str | None,
    schema: str | None,
    partitions: int,
    cluster: ClusterOptions,
    *,
    auto_trim: bool,
    as_json: bool,
) -> None:
    """Create and mount a queue at PATH: an ordered dynamic table.

    It gets the columns $timestamp and $cumulative_data_weight, which the cluster fills: lag in seconds and
    rewinding to a time need the first, max_bytes_per_partition of the source needs the second. If a queue
    is there and fits, nothing changes.
    """
    require_one_schema(like, schema)
    from yt_exactly_once.operations.create_table import parse_schema, schema_like  # noqa: PLC0415 - the client is slow
    from yt_exactly_once.operations.queues import create_queue  # noqa: PLC0415

    connection = cluster.connect()
    columns: Any = parse_schema(schema) if schema else schema_like(connection, like or "")[0]
    created = create_queue(connection, path, columns, partitions=partitions, auto_trim=auto_trim)
    if as_json:
        print_json({"path": path, "created": created})
    else:
        click.echo(f"{'created' if created else 'exists and fits'}: {path}")
