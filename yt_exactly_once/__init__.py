"""Exactly-once delivery from Spark Structured Streaming into YTsaurus, on stock PySpark.

Public names are resolved on first use: importing the package loads neither pyspark nor the YTsaurus
client, so that configuration and errors stay cheap everywhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yt_exactly_once.config import Changes as Changes
    from yt_exactly_once.config import ClusterConfig as ClusterConfig
    from yt_exactly_once.config import DeliveryMode as DeliveryMode
    from yt_exactly_once.config import RetryPolicy as RetryPolicy
    from yt_exactly_once.errors import ExactlyOnceError as ExactlyOnceError
    from yt_exactly_once.observability import Event as Event
    from yt_exactly_once.operations.creating import create_consumer as create_consumer
    from yt_exactly_once.operations.creating import create_queue as create_queue
    from yt_exactly_once.operations.creating import create_table as create_table
    from yt_exactly_once.spark.compat.java import require_java as require_java
    from yt_exactly_once.spark.compat.raised import exactly_once_error as exactly_once_error
    from yt_exactly_once.spark.debezium import debezium_changes as debezium_changes
    from yt_exactly_once.spark.doors.transactional_sink import (
        TransactionalSink as TransactionalSink,
    )
    from yt_exactly_once.spark.registration import register_source as register_source
    from yt_exactly_once.spark.sink.options import SinkOptions as SinkOptions
    from yt_exactly_once.spark.sink.target import Target as Target
    from yt_exactly_once.telemetry import enable_lineage as enable_lineage
    from yt_exactly_once.telemetry import enable_telemetry as enable_telemetry
    from yt_exactly_once.telemetry import serve_metrics as serve_metrics

_HOMES = {
    "Changes": "config",
    "ClusterConfig": "config",
    "Event": "observability",
    "ExactlyOnceError": "errors",
    "RetryPolicy": "config",
    "SinkOptions": "spark.sink.options",
    "Target": "spark.sink.target",
    "TransactionalSink": "spark.doors.transactional_sink",
    "DeliveryMode": "config",
    "create_consumer": "operations.creating",
    "create_queue": "operations.creating",
    "create_table": "operations.creating",
    "debezium_changes": "spark.debezium",
    "register_source": "spark.registration",
    "enable_lineage": "telemetry",
    "enable_telemetry": "telemetry",
    "exactly_once_error": "spark.compat.raised",
    "require_java": "spark.compat.java",
    "serve_metrics": "telemetry",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
