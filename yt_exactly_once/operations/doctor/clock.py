"""The clock of this machine against that of the cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator

from yt_exactly_once.operations.doctor.finding import Finding, ok, warning
from yt_exactly_once.ytsaurus.browsing import now
from yt_exactly_once.ytsaurus.client import Connection

_TOLERATED_SECONDS = 5


def examine(connection: Connection) -> Iterator[Finding]:
    """Compare the clocks, give or take the time of the request."""
    before = time.time()
    theirs = now(connection)
    after = time.time()
    # The cluster counts whole seconds.
    skew = max(before - (theirs + 1), theirs - after, 0.0)
    if skew > _TOLERATED_SECONDS:
        yield warning(
            "clock",
            f"The clocks of this machine and of the cluster differ by {skew:.0f} s",
            "Exactly-once does not depend on it. Lags in seconds, committed_at in the ledger and watermarks "
            "on include_timestamp are wrong by as much",
            "timedatectl set-ntp true, or synchronise the clock of this machine in another way",
        )
    else:
        yield ok("clock", "The clocks of this machine and of the cluster agree")
