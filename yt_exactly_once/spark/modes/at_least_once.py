"""At-least-once mode: tasks insert, and rows may repeat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.modes.mode import Assignment, Mode, Sessions, TargetBatch
from yt_exactly_once.spark.modes.tasks import ChunkReport, InsertTask, require_no_transaction

if TYPE_CHECKING:
    import pyarrow as pa

    from yt_exactly_once.commit.parts import TargetRows


class AtLeastOnce(Mode):
    """Loses nothing, and may repeat rows. Tasks write them, and the driver learns how many there were."""

    one_transaction = False
    tolerates_repeats = True

    def check(self) -> None:
        """Refuse what needs a transaction over all rows, or all keys together."""
        require_no_transaction(self.options)
        for target in self.options.targets:
            if target.unique_keys:
                raise ConfigError(
                    "unique_keys is not possible in mode 'at-least-once': nobody sees all rows of a batch",
                    remedy="Use another mode",
                    target=target.path,
                )

    def begun_sessions(self, *_: object, **__: object) -> Sessions:
        """Return none: no session matters, as rows may repeat."""
        return {}

    def assign(self, given: TargetBatch) -> Assignment:
        """Let tasks insert the rows."""
        settings = self.settings(given, given.target.of_batch(given.batch))
        task = InsertTask(settings, unique_keys=False)
        return Assignment(given, settings.names, task, by_ends=given.by_ends)

    def finish(self, assignment: Assignment, arrived: Iterable[pa.RecordBatch]) -> list[TargetRows]:
        """Return what the tasks have written."""
        return [ChunkReport.of_all(arrived).written(assignment.given)]
