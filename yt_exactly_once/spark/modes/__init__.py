"""The delivery modes. A new one is a module beside the others, a name in `DeliveryMode`, and a line here."""

from __future__ import annotations

from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.spark.modes.at_least_once import AtLeastOnce
from yt_exactly_once.spark.modes.idempotent import Idempotent
from yt_exactly_once.spark.modes.mode import Mode
from yt_exactly_once.spark.modes.transactional import Transactional
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.ytsaurus.client import Connection

MODES: dict[str, type[Mode]] = {
    DeliveryMode.TRANSACTIONAL: Transactional,
    DeliveryMode.AT_LEAST_ONCE: AtLeastOnce,
    DeliveryMode.IDEMPOTENT: Idempotent,
}


def mode_of(options: SinkOptions, connection: Connection) -> Mode:
    """Return the mode that options name."""
    return MODES[options.mode](options, connection)
