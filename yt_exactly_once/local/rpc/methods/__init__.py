"""The methods of the service; importing this module registers them."""

from yt_exactly_once.local.rpc.calls import METHODS
from yt_exactly_once.local.rpc.methods import (
    cypress,
    modifications,
    queues,
    rows,
    streams,
    tables,
    transactions,
)

__all__ = [
    "METHODS",
    "cypress",
    "modifications",
    "queues",
    "rows",
    "streams",
    "tables",
    "transactions",
]
