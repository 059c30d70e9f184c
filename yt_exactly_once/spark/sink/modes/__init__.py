"""The write modes. A new one is a module beside the others, a name in `WriteMode`, and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt_exactly_once.config import WriteMode
from yt_exactly_once.spark.sink.modes.at_least_once import AtLeastOnce
from yt_exactly_once.spark.sink.modes.idempotent import Idempotent
from yt_exactly_once.spark.sink.modes.transactional import Transactional

if TYPE_CHECKING:
    from yt_exactly_once.spark.sink.modes.mode import Mode

MODES: dict[str, type[Mode]] = {
    WriteMode.TRANSACTIONAL: Transactional,
    WriteMode.AT_LEAST_ONCE: AtLeastOnce,
    WriteMode.IDEMPOTENT: Idempotent,
}
