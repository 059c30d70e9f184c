"""At-least-once mode: tasks write chunks straight into the table; one that Spark repeats writes again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.sink.modes.tasks import (
    REPORT_SCHEMA,
    ChunkReport,
    InsertTask,
    TaskMode,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.parts import SendAhead, TargetRows
    from yt_exactly_once.spark.sink.modes.mode import Sessions
    from yt_exactly_once.spark.sink.targets import PreparedTarget


class AtLeastOnce(TaskMode):
    """Loses nothing, and may repeat rows."""

    def check(self) -> None:
        """See `Mode.check`: nobody sees all keys of a batch."""
        super().check()
        for target in self.options.targets:
            if target.unique_keys:
                raise ConfigError(
                    "unique_keys is not possible in mode 'at-least-once': nobody sees all rows of a batch",
                    remedy="Use another mode",
                    target=target.path,
                )

    def write(
        self,
        frame: DataFrame,
        batch: MicroBatch,
        target: PreparedTarget,
        begun: Sessions,  # noqa: ARG002 - the contract
        send: SendAhead | None = None,  # noqa: ARG002 - the contract
    ) -> list[TargetRows]:
        """See `Mode.write`."""
        plain, settings = self.for_tasks(frame, target.of_batch(batch))
        task = InsertTask(settings, update=target.options.update_columns, unique_keys=False)
        reports = self.reports(plain.mapInArrow(task, REPORT_SCHEMA))
        return self.written(target, ChunkReport.of_all(reports))
