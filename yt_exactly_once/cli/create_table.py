"""`create-table`: a dynamic table for a DataFrame, or like another table."""

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


@click.command("create-table")
@click.argument("path")
@schema_options
@click.option(
    "--key", "keys", multiple=True, metavar="COLUMN", help="A key column; may be repeated."
)
@click.option("--tablets", type=int, metavar="N", help="Number of tablets.  [default: 1]")
@click.option(
    "--service-columns",
    is_flag=True,
    help="With the columns that say where a row came from, for audit by source. The source fills them with "
    "include_service_columns=true and include_queue_path=true.",
)
@click.option("--bundle", metavar="NAME", help="Tablet cell bundle.  [default: that of the folder]")
@click.option("--medium", metavar="NAME", help="Primary medium.  [default: that of the folder]")
@cluster_options
@json_option
def command(
    path: str,
    like: str | None,
    schema: str | None,
    keys: tuple[str, ...],
    tablets: int | None,
    bundle: str | None,
    medium: str | None,
    cluster: ClusterOptions,
    *,
    service_columns: bool,
    as_json: bool,
) -> None:
    """Create and mount a dynamic table at PATH: ordered, or sorted with --key.

    Give --like or --schema. If a table is there and fits, nothing changes. If it does not fit, this is an
    error.
    """
    require_one_schema(like, schema)
    from yt_exactly_once.operations.create_table import (  # noqa: PLC0415 - the client is slow
        ORIGIN_COLUMNS,
        create_table,
        parse_schema,
        schema_like,
    )

    connection = cluster.connect()
    columns: Any
    if schema is not None:
        columns, key = parse_schema(schema), list(keys)
    else:
        columns, like_key = schema_like(connection, like or "")
        key = list(keys) or like_key
    created = create_table(
        path,
        columns,
        key_columns=key,
        tablet_count=tablets,
        attributes={
            name: value
            for name, value in (("tablet_cell_bundle", bundle), ("primary_medium", medium))
            if value is not None
        },
        extra_columns=ORIGIN_COLUMNS if service_columns else (),
        connection=connection,
    )
    if as_json:
        print_json({"path": path, "created": created})
    else:
        click.echo(f"{'created' if created else 'exists and fits'}: {path}")
