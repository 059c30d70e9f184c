"""Every command of the embedded cluster; importing this package fills the registry."""

from yt_exactly_once.local.commands import (
    altering,
    cypress,
    files,
    master_transactions,
    partitions,
    queues,
    rows,
    security,
    select,
    service,
    sessions,
    static_tables,
    tables,
    transactions,
)
from yt_exactly_once.local.commands.version import VERSION

__all__ = [
    "VERSION",
    "altering",
    "cypress",
    "files",
    "master_transactions",
    "partitions",
    "queues",
    "rows",
    "security",
    "select",
    "service",
    "sessions",
    "static_tables",
    "tables",
    "transactions",
]
