"""Small things that the status of queues and of consumers share: rates and times."""

from __future__ import annotations

from datetime import UTC, datetime

from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS


def none() -> dict[str, float]:
    """Return a rate of nothing, over every period that the queue agent publishes."""
    return {"current": 0.0, "1m_raw": 0.0, "1m": 0.0, "1h": 0.0, "1d": 0.0}


def seconds(timestamp: int) -> int:
    """Return the unix time of a timestamp."""
    return timestamp >> TIMESTAMP_COUNTER_BITS


def iso(timestamp: int) -> str:
    """Return the time of a timestamp as attributes spell it."""
    return datetime.fromtimestamp(seconds(timestamp), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
