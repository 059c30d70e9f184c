"""`create-ledger`: the tables that a sink keeps, with rights of their own."""

from __future__ import annotations

from dataclasses import replace

import click

from yt_exactly_once.cli.options import ClusterOptions, cluster_options, json_option, mode_option
from yt_exactly_once.cli.output import print_json
from yt_exactly_once.config import DeliveryMode


@click.command("create-ledger")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@mode_option("Of the sink: idempotent mode keeps a producer table, too.")
@click.option("--ledger", metavar="PATH", help="Of the ledger.  [default: as the sink's]")
@click.option("--producer", metavar="PATH", help="Of the producer table.  [default: as the sink's]")
@click.option("--dead-letter", metavar="PATH", help="Of the dead-letter table, if one is used.")
@click.option(
    "--writer",
    "writers",
    multiple=True,
    required=True,
    metavar="SUBJECT",
    help="User or group that runs the query; may be repeated.",
)
@click.option(
    "--reader",
    "readers",
    multiple=True,
    metavar="SUBJECT",
    help="User or group that looks at the query; may be repeated.",
)
@click.option(
    "--operator",
    "operators",
    multiple=True,
    metavar="SUBJECT",
    help="User or group that mounts, repairs and removes the tables; may be repeated.  "
    "[default: the user of the token]",
)
@cluster_options
@json_option
def command(
    targets: tuple[str, ...],
    mode: str,
    ledger: str | None,
    producer: str | None,
    dead_letter: str | None,
    writers: tuple[str, ...],
    readers: tuple[str, ...],
    operators: tuple[str, ...],
    cluster: ClusterOptions,
    *,
    as_json: bool,
) -> None:
    """Create and mount the tables that the sink of all TARGETs keeps, with rights of their own.

    They inherit no rights: who may write a target only cannot forge an entry of the ledger, which would make
    the sink skip a batch. A table that is there keeps its rows and gets the rights.
    """
    from yt_exactly_once.operations.doctor.subject import Subject  # noqa: PLC0415 - slow client
    from yt_exactly_once.operations.own_tables import Subjects, create_own_tables  # noqa: PLC0415
    from yt_exactly_once.ytsaurus.client import Connection  # noqa: PLC0415

    # Only HTTP proxies say whose the token is.
    config = replace(cluster.config(), client_config={"backend": "http"})
    subject = Subject(
        cluster=config,
        targets=targets,
        mode=DeliveryMode(mode),
        ledger=ledger,
        producer=producer,
        dead_letter=dead_letter,
    )
    subjects = Subjects(writers=writers, readers=readers, operators=operators)
    connection = Connection(config)
    connection.require_proxy()
    created = create_own_tables(connection, subject, subjects)
    if as_json:
        print_json(created)
        return
    for path, is_new in created.items():
        click.echo(f"{'created' if is_new else 'exists, with new rights'}: {path}")
