"""`create-consumer`, `create-ledger`, `create-queue`, `create-table`: what a pipeline needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from yt_exactly_once.cli import options
from yt_exactly_once.config import Changes, DeliveryMode


@click.command("create-consumer")
@click.argument("path")
@click.argument("queue")
@click.option(
    "--vital/--not-vital",
    default=True,
    help="Whether the queue must keep rows until this consumer has passed them.",
)
@options.cluster_options
def create_consumer(path: str, queue: str, cluster: options.ClusterOptions, vital: bool) -> None:
    """Create and mount a consumer at PATH, and register it for QUEUE.

    A consumer that exists stays where it is. Proxies learn of a registration within 25 s.
    """
    from yt_exactly_once.operations import creating  # noqa: PLC0415 - slow client

    created, registered = creating.ensure_consumer(cluster.connection, path, queue, vital=vital)
    kind = "vital" if vital else "not vital"
    cluster.answer(
        {"path": path, "queue": queue, "created": created, "registered": registered},
        f"{'created' if created else 'exists'}: {path}",
        f"{'registered' if registered else 'was registered'} for {queue}: {kind}",
    )


@click.command("create-ledger")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@options.mode_option("Of the sink: idempotent mode keeps a producer table, too.")
@options.option("--ledger PATH", "Of the ledger.  [default: as the sink's]")
@options.option("--producer PATH", "Of the producer table.  [default: as the sink's]")
@options.option("--dead-letter PATH", "Of the dead-letter table, if one is used.")
@options.changes_options
@options.several("--writer writers SUBJECT", "User or group that runs the query", required=True)
@options.several("--reader readers SUBJECT", "User or group that looks at the query")
@options.option(
    "--operator operators SUBJECT",
    "User or group that mounts, repairs and removes the tables; may be repeated.  "
    "[default: the user of the token]",
    multiple=True,
)
@options.cluster_options
def create_ledger(
    mode: str,
    writers: tuple[str, ...],
    readers: tuple[str, ...],
    operators: tuple[str, ...],
    cluster: options.ClusterOptions,
    **tables: Any,
) -> None:
    """Create and mount the tables that the sink of all TARGETs keeps, with rights of their own.

    They inherit no rights: who may write a target only cannot forge an entry of the ledger, which would make
    the sink skip a batch. A table that is there keeps its rows and gets the rights. With --changes-sequence
    the tables of tombstones are among them.
    """
    from yt_exactly_once.operations.creating import create_own_tables  # noqa: PLC0415 - slow client
    from yt_exactly_once.operations.doctor.subject import Subject  # noqa: PLC0415 - slow client

    # Only HTTP proxies say whose the token is.
    cluster = replace(cluster, backend="http")
    subject = Subject(cluster=cluster.config(), mode=DeliveryMode(mode), **tables)
    created = create_own_tables(
        cluster.connection, subject, writers=writers, readers=readers, operators=operators
    )
    kinds = {True: "created", False: "exists, with new rights"}
    cluster.answer(created, *(f"{kinds[is_new]}: {path}" for path, is_new in created.items()))


def _like(command: Any) -> Any:
    """Add `--like` and `--schema`, the two ways to name columns."""
    like = options.option("--like PATH", "With the columns of a queue or of another dynamic table.")
    schema = options.option(
        "--schema TEXT",
        "With the columns of a DataFrame: the JSON of schema.json(), Spark's DDL such as "
        "'id bigint, tags array<string>', or @FILE with either.",
    )
    return like(schema(command))


def _columns(
    cluster: options.ClusterOptions, like: str | None, schema: str | None
) -> tuple[Any, Any]:
    """Return the columns, and the key that they bring."""
    if (like is None) == (schema is None):
        raise click.UsageError("Give one of --like and --schema")
    from yt_exactly_once.operations.creating import parse_schema, schema_like  # noqa: PLC0415 - slow client

    if schema is not None:
        return parse_schema(schema), []
    return schema_like(cluster.connection, like or "")


def _answer(cluster: options.ClusterOptions, path: str, created: bool) -> None:
    what = "created" if created else "exists and fits"
    cluster.answer({"path": path, "created": created}, f"{what}: {path}")


@click.command("create-queue")
@click.argument("path")
@_like
@options.option("--tablet-count N", "Number of tablets: its partitions.", default=1)
@options.flag("--auto-trim", "Let the cluster trim what all vital consumers have read.")
@options.cluster_options
def create_queue(
    path: str, like: str | None, schema: str | None, cluster: options.ClusterOptions, **wanted: Any
) -> None:
    """Create and mount a queue at PATH: an ordered dynamic table.

    It gets the columns $timestamp and $cumulative_data_weight, which the cluster fills: lag in seconds and
    rewinding to a time need the first, max_bytes_per_partition of the source needs the second. If a queue
    is there and fits, nothing changes.
    """
    columns, _ = _columns(cluster, like, schema)
    from yt_exactly_once.operations import creating  # noqa: PLC0415 - slow client

    created = creating.create_queue(path, columns, connection=cluster.connection, **wanted)
    _answer(cluster, path, created)


@click.command("create-table")
@click.argument("path")
@_like
@options.several("--key keys COLUMN", "A key column")
@options.option("--tablet-count N", "Number of tablets.  [default: 1]", type=int)
@options.flag(
    "--service-columns",
    "With the columns that say where a row came from, for audit by source. The source fills them with "
    "include_service_columns=true and include_queue_path=true.",
)
@options.changes_options
@options.option("--bundle NAME", "Tablet cell bundle.  [default: that of the folder]")
@options.option("--medium NAME", "Primary medium.  [default: that of the folder]")
@options.cluster_options
def create_table(
    path: str,
    like: str | None,
    schema: str | None,
    keys: tuple[str, ...],
    tablet_count: int | None,
    bundle: str | None,
    medium: str | None,
    changes: Changes | None,
    cluster: options.ClusterOptions,
    service_columns: bool,
) -> None:
    """Create and mount a dynamic table at PATH: ordered, or sorted with --key.

    Give --like or --schema. If a table is there and fits, nothing changes. If it does not fit, this is an
    error. With --changes-sequence the table of tombstones is created too.
    """
    columns, key = _columns(cluster, like, schema)
    from yt_exactly_once.operations import creating  # noqa: PLC0415 - slow client

    chosen = {"tablet_cell_bundle": bundle, "primary_medium": medium}
    created = creating.create_table(
        path,
        columns,
        key_columns=keys or key,
        tablet_count=tablet_count,
        attributes={name: value for name, value in chosen.items() if value is not None},
        extra_columns=creating.ORIGIN_COLUMNS if service_columns else (),
        changes=changes,
        connection=cluster.connection,
    )
    _answer(cluster, path, created)
