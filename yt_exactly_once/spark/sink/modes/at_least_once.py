"""At-least-once mode: tasks write chunks straight into the table; one that Spark repeats writes again."""

from __future__ import annotations

from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.sink.modes.mode import Plan, TargetBatch
from yt_exactly_once.spark.sink.modes.tasks import InsertTask, TaskMode


class AtLeastOnce(TaskMode):
    """Loses nothing, and may repeat rows."""

    traits = DeliveryMode.AT_LEAST_ONCE.traits

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

    def plan(self, given: TargetBatch) -> Plan:
        """See `Mode.plan`."""
        settings = self.settings(given, given.target.of_batch(given.batch))
        return Plan(given, settings.names, InsertTask(settings, unique_keys=False))
