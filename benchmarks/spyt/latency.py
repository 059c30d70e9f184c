"""Latency: from `insert_rows` into a queue until the row is in the target, while one row comes each 50 ms.

What a reader sees is asked from outside, for all sides alike: how many rows the target has had. A row is seen
at the first answer that counts it, so times are up to a look and a request too long.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from benchmarks.freshness import WARM_ROWS, feed, waits
from benchmarks.spyt.trials import Contender, Stage, Trial

if TYPE_CHECKING:
    from yt.wrapper import YtClient

_LOOK_SECONDS = 0.025
_PATIENCE_SECONDS = 60.0


def wait_for_rows(stage: Stage, who: Contender, seconds: int, pause: float) -> list[float]:
    """Return how many ms each row has waited; raise `RuntimeError` if one does not come."""
    total = WARM_ROWS + round(seconds / pause)
    seen: list[float] = []
    with Trial(stage, who) as trial, trial.driver(patience=seconds) as driver:
        driver.wait(lambda: driver.last("running"))
        watcher = threading.Thread(
            target=_watch, args=(stage.cluster.client(), trial.target, total, seen), daemon=True
        )
        watcher.start()
        inserted = feed(stage.cluster.proxy_urls[0], trial.queues[0].path, total, pause)
        watcher.join(_PATIENCE_SECONDS)
        if len(seen) != total:
            message = f"{who.name}: {len(seen)} of {total} rows came:\n{driver.tail()}"
            raise RuntimeError(message)
    return waits(seen, inserted)


def _watch(client: YtClient, target: str, total: int, seen: list[float]) -> None:
    """Note when each row is in the only tablet of a target."""
    while len(seen) < total:
        (tablet,) = client.get_tablet_infos(target, [0])["tablets"]
        seen.extend([time.monotonic()] * (tablet["total_row_count"] - len(seen)))
        time.sleep(_LOOK_SECONDS)
