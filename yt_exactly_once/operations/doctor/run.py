"""Examines a subject: this machine first, then the cluster, then the tables and settings of the query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from yt_exactly_once.errors import AccessError, ExactlyOnceError, NewerFormatError
from yt_exactly_once.operations.doctor import (
    checkpoint,
    cluster,
    machine,
    queries,
    spark_settings,
    tables,
)
from yt_exactly_once.operations.doctor.subject import Finding, Subject, refused, unknown
from yt_exactly_once.ytsaurus.client import Connection

if TYPE_CHECKING:
    from yt_exactly_once.config import ClusterConfig


def examine(
    subject: Subject, *, connect: Callable[[ClusterConfig], Connection] = Connection
) -> Iterator[Finding]:
    """Yield findings as they are found; nothing is changed anywhere."""
    yield from machine.examine(subject)
    # What is read here is the same over both backends, and only HTTP proxies say who the user is.
    over_http = {**subject.cluster.client_config, "backend": "http"}
    connection = connect(replace(subject.cluster, client_config=over_http))
    user = yield from cluster.examine_entry(subject, connection)
    if user is None:
        yield unknown(
            "cluster",
            "Permissions, tables, queues and the clock were not examined",
            "They need a proxy that answers, and a user that it knows",
            "Repair the address or the token, then run the command again",
        )
        yield from spark_settings.examine(subject, None)
        return
    known: str = user
    rows = queries.rows_of_targets(subject, connection)
    checks: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("checkpoint", lambda: checkpoint.examine_source(subject, connection)),
        ("proxies", lambda: cluster.examine_proxies(subject, connection)),
        ("permission", lambda: cluster.examine_permissions(subject, connection, known)),
        ("clock", lambda: cluster.examine_clock(connection)),
        ("bundles", lambda: cluster.examine_bundles(subject, connection)),
        ("queue", lambda: tables.examine_queues(subject, connection, rows)),
        ("query", lambda: queries.examine(subject, connection, rows)),
        ("producer sessions", lambda: queries.examine_sessions(subject, connection, rows)),
        ("checkpoint", lambda: checkpoint.examine(subject, connection, rows)),
        ("tables", lambda: tables.examine(subject, connection)),
        ("spark settings", lambda: spark_settings.examine(subject, connection)),
    )
    for name, check in checks:
        yield from _guarded(name, check)


def _guarded(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Turn an error of the cluster into a finding, so that the other checks are made too."""
    try:
        yield from check()
    except (AccessError, NewerFormatError) as error:
        yield refused(name, error, "The query would be refused in the same way")
    except ExactlyOnceError as error:
        yield unknown(name, error.placed, "It could not be examined", error.remedy)
