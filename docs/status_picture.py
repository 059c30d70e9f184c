"""The picture of `yt-exactly-once status`: two made-up queries, as the command prints them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from io import StringIO

from rich.console import Console

from yt_exactly_once.commit.entry import LedgerEntry, PartitionOffset
from yt_exactly_once.operations.ledgers import LedgerRow
from yt_exactly_once.operations.query_status import (
    PartitionStatus,
    QueryStatus,
    QueueStatus,
    TargetStatus,
)
from yt_exactly_once.operations.view import remarks, rendered

_WIDTH, _QUEUE = 156, "//home/shop/orders"


def status_picture() -> str:
    """Return the picture as SVG. It loads nothing: readers have the font of their terminal."""
    queries = [
        _query("totals", "//home/shop/totals", 1_204, 48_160_000, lag=120_000, age=5.0),
        _query("audit log", "//home/shop/log", 377, 15_080_000, lag=2_400_000, age=412.0),
    ]
    screen = Console(record=True, width=_WIDTH, file=StringIO(), force_terminal=True)
    screen.print(rendered(queries, partitions=False), *remarks(queries, {}), soft_wrap=True)
    svg = screen.export_svg(title="yt-exactly-once status //home/shop", unique_id="status")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def _query(name: str, path: str, batch: int, rows: int, *, lag: int, age: float) -> QueryStatus:
    """Return a query with four queue partitions, which is so many rows and seconds behind."""
    done, consumer = rows // 4, f"{path}_reader"
    last = PartitionOffset(done - 10_000, done, done)
    entry = LedgerEntry(
        query_id=f"{name}-4f1c",
        target=path,
        batch_id=batch,
        run_id="",
        transaction_id="",
        offsets={("hahn", _QUEUE, consumer, ""): dict.fromkeys(range(4), last)},
        mode="transactional",
        committed_at=datetime(2026, 1, 1, tzinfo=UTC).isoformat(),
        seconds=0.8,
        query_name=name,
    )
    parts = tuple(
        PartitionStatus(number, done, done, done, 0, done + lag // 4, age) for number in range(4)
    )
    queue = QueueStatus("hahn", _QUEUE, consumer, True, True, False, parts, "mounted")
    target = TargetStatus(path=path, rows=40_000, total_rows=rows, total_batches=batch + 1)
    return QueryStatus(LedgerRow(f"{path}_ledger", entry), age, (target,), (queue,))
