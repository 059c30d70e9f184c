"""`create-consumer`: a consumer, registered for its queue."""

from __future__ import annotations

import click

from yt_exactly_once.cli.options import ClusterOptions, cluster_options, json_option
from yt_exactly_once.cli.output import print_json


@click.command("create-consumer")
@click.argument("path")
@click.argument("queue")
@click.option(
    "--vital/--not-vital",
    default=True,
    help="Whether the queue must keep rows until this consumer has passed them.",
)
@cluster_options
@json_option
def command(path: str, queue: str, cluster: ClusterOptions, *, vital: bool, as_json: bool) -> None:
    """Create and mount a consumer at PATH, and register it for QUEUE.

    A consumer that exists stays where it is. Proxies learn of a registration after some seconds.
    """
    from yt_exactly_once.operations.queues import create_consumer  # noqa: PLC0415 - slow client

    created, registered = create_consumer(cluster.connect(), path, queue, vital=vital)
    if as_json:
        print_json({"path": path, "queue": queue, "created": created, "registered": registered})
        return
    click.echo(f"{'created' if created else 'exists'}: {path}")
    kind = "vital" if vital else "not vital"
    click.echo(f"{'registered' if registered else 'was registered'} for {queue}: {kind}")
