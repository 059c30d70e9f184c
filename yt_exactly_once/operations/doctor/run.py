"""Examines a subject: this machine first, then the cluster, then the tables and settings of the query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from yt_exactly_once.codec.path_pattern import PathPattern
from yt_exactly_once.operations.doctor import cluster, driver, queries, tables
from yt_exactly_once.operations.doctor.subject import Finding, Subject, about, unknown
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tombstones import targets_with_tombstones

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
            "Permissions, tables, queues and the clock were not examined",
            "They need a proxy that answers, and a user that it knows",
            "Repair the address or the token, then run the command again",
            check="cluster",
        )
        yield from about("spark settings", driver.examine_settings(subject, None))
        return
    kind = str(subject.cluster.client_config.get("backend") or "http")
    rows = queries.rows_of_targets(subject, connection)
    named = (path for row in rows if row.entry.pattern for path in row.entry.tables)
    fixed = [target for target in subject.targets if PathPattern.of(target) is None]
    changed = fixed if subject.changes else targets_with_tombstones(connection, fixed)
    subject = replace(subject, tables=tuple(sorted({*named})), changed=tuple(changed))
    # Nothing is asked before its findings are taken.
    checks = (
        ("checkpoint", queries.examine_source(subject, connection)),
        (f"{kind} proxies", cluster.examine_proxies(kind, connection)),
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
        yield from about(name, findings)
