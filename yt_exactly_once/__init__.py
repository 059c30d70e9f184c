"""Exactly-once delivery from Spark Structured Streaming into YTsaurus, on stock PySpark.

Public names are resolved on first use: importing the package loads neither pyspark nor the YTsaurus
client, so that configuration and errors stay cheap everywhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yt_exactly_once.commit.entry import LedgerEntry as LedgerEntry
    from yt_exactly_once.commit.tally import Tally as Tally
    from yt_exactly_once.config import Changes as Changes
    from yt_exactly_once.config import ClusterConfig as ClusterConfig
    from yt_exactly_once.config import DeliveryMode as DeliveryMode
    from yt_exactly_once.config import RetryPolicy as RetryPolicy
    from yt_exactly_once.errors import ExactlyOnceError as ExactlyOnceError
    from yt_exactly_once.observability import Event as Event
    from yt_exactly_once.operations.audit.found import Audit as Audit
    from yt_exactly_once.operations.audit.found import PartitionAudit as PartitionAudit
    from yt_exactly_once.operations.audit.found import SourceColumns as SourceColumns
    from yt_exactly_once.operations.audit.found import Verdict as Verdict
    from yt_exactly_once.operations.audit.run import audit as audit
    from yt_exactly_once.operations.creating import create_consumer as create_consumer
    from yt_exactly_once.operations.creating import create_queue as create_queue
    from yt_exactly_once.operations.creating import create_table as create_table
    from yt_exactly_once.operations.ledgers import LedgerRow as LedgerRow
    from yt_exactly_once.operations.ledgers import history as history
    from yt_exactly_once.operations.ledgers import ledger as ledger
    from yt_exactly_once.operations.query_status import PartitionStatus as PartitionStatus
    from yt_exactly_once.operations.query_status import QueryStatus as QueryStatus
    from yt_exactly_once.operations.query_status import QueueStatus as QueueStatus
    from yt_exactly_once.operations.query_status import TargetStatus as TargetStatus
    from yt_exactly_once.operations.status import Statuses as Statuses
    from yt_exactly_once.operations.status import status as status
    from yt_exactly_once.spark.compat.java import require_java as require_java
    from yt_exactly_once.spark.compat.raised import exactly_once_error as exactly_once_error
    from yt_exactly_once.spark.debezium import debezium_changes as debezium_changes
    from yt_exactly_once.spark.doors.transactional_sink import (
        TransactionalSink as TransactionalSink,
    )
    from yt_exactly_once.spark.registration import register_source as register_source
    from yt_exactly_once.spark.sink.options import SinkOptions as SinkOptions
    from yt_exactly_once.spark.sink.target import Target as Target
    from yt_exactly_once.telemetry import Telemetry as Telemetry
    from yt_exactly_once.telemetry import enable_lineage as enable_lineage
    from yt_exactly_once.telemetry import enable_telemetry as enable_telemetry
    from yt_exactly_once.telemetry import serve_metrics as serve_metrics

_HOMES = {
    "commit.entry": ("LedgerEntry",),
    "commit.tally": ("Tally",),
    "config": ("Changes", "ClusterConfig", "DeliveryMode", "RetryPolicy"),
    "errors": ("ExactlyOnceError",),
    "observability": ("Event",),
    "operations.audit.found": ("Audit", "PartitionAudit", "SourceColumns", "Verdict"),
    "operations.audit.run": ("audit",),
    "operations.creating": ("create_consumer", "create_queue", "create_table"),
    "operations.ledgers": ("LedgerRow", "history", "ledger"),
    "operations.query_status": ("PartitionStatus", "QueryStatus", "QueueStatus", "TargetStatus"),
    "operations.status": ("Statuses", "status"),
    "spark.compat.java": ("require_java",),
    "spark.compat.raised": ("exactly_once_error",),
    "spark.debezium": ("debezium_changes",),
    "spark.doors.transactional_sink": ("TransactionalSink",),
    "spark.registration": ("register_source",),
    "spark.sink.options": ("SinkOptions",),
    "spark.sink.target": ("Target",),
    "telemetry": ("Telemetry", "enable_lineage", "enable_telemetry", "serve_metrics"),
}
"""Public names by their modules; the imports above say the same to type checkers."""

_MODULES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
