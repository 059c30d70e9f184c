"""Examines a subject: this machine first, then the cluster, then the tables and settings of the query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from yt_exactly_once.errors import AccessError, ExactlyOnceError, NewerFormatError
from yt_exactly_once.operations.doctor import cluster, driver, queries, tables
from yt_exactly_once.operations.doctor.subject import Finding, Subject, refused, unknown
from yt_exactly_once.ytsaurus.client import Connection

if TYPE_CHECKING:
    from yt_exactly_once.config import ClusterConfig


def examine(
    subject: Subject, *, connect: Callable[[ClusterConfig], Connection] = Connection
) -> Iterator[Finding]:
    """Yield findings as they are found; nothing is changed anywhere."""
    yield from driver.examine_machine(subject)
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
        yield from driver.examine_settings(subject, None)
        return
    rows = queries.rows_of_targets(subject, connection)
    # Nothing is asked before its findings are taken.
    checks = (
        ("checkpoint", queries.examine_source(subject, connection)),
        ("proxies", cluster.examine_proxies(subject, connection)),
        ("permission", cluster.examine_permissions(subject, connection, user)),
        ("clock", cluster.examine_clock(connection)),
        ("bundles", cluster.examine_bundles(subject, connection)),
        ("queue", tables.examine_queues(subject, connection, rows)),
        ("query", queries.examine(subject, connection, rows)),
        ("producer sessions", queries.examine_sessions(subject, connection, rows)),
        ("checkpoint", queries.examine_checkpoint(subject, connection, rows)),
        ("tables", tables.examine(subject, connection)),
        ("spark settings", driver.examine_settings(subject, connection)),
    )
    for name, findings in checks:
        # An error of the cluster is a finding, so that the other checks are made too.
        try:
            yield from findings
        except (AccessError, NewerFormatError) as error:
            yield refused(name, error, "The query would be refused in the same way")
        except ExactlyOnceError as error:
            yield unknown(name, error.placed, "It could not be examined", error.remedy)
