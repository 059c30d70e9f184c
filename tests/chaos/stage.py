"""The tables of a round: a queue, and a consumer and a target for every query."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yt.wrapper import YtClient

from tests.chaos.checkpoint import twin
from tests.chaos.messages import BATCH_COLUMN, QueryTask, RoundTask
from tests.chaos.plan import QueryPlan, RoundPlan, target_path
from tests.flows import QUERIES, Query, Queue, columns, create_table
from yt_exactly_once.config import DeliveryMode

_TABLET_COUNT = "tablet_count"


@dataclass(frozen=True)
class Subject:
    """One query and its tables."""

    plan: QueryPlan
    query: Query
    consumer: str
    target: str
    ledger: str
    checkpoint: Path

    @property
    def name(self) -> str:
        return self.plan.name

    def select(
        self, client: YtClient, what: str, where: str = "", **options: Any
    ) -> list[dict[str, Any]]:
        return list(client.select_rows(f"{what} from [{self.target}] {where}", **options))


@dataclass(frozen=True)
class Stage:
    """All tables and folders of a round."""

    plan: RoundPlan
    queue: Queue
    subjects: tuple[Subject, ...]
    trouble: Path

    @classmethod
    def build(cls, client: YtClient, plan: RoundPlan, folder: Path) -> Stage:
        queue = Queue.create(client, plan.folder, partitions=plan.partitions)
        trouble = folder / "trouble"
        trouble.mkdir(parents=True)
        subjects = tuple(_subject(client, plan, query, queue, folder) for query in plan.queries)
        return cls(plan, queue, subjects, trouble)

    @property
    def movable(self) -> list[str]:
        """Tables that can be unmounted for a moment while drivers run."""
        tables = [path for one in self.subjects for path in (one.target, one.ledger, one.consumer)]
        if self.plan.mode is DeliveryMode.IDEMPOTENT:
            tables += [f"{one.target}_producer" for one in self.subjects if not one.plan.is_sorted]
        return tables

    def task(self, proxy: str, *, copies: bool = False) -> RoundTask:
        """Return what a driver has to do.

        Args:
            copies: go on from the copies of the checkpoints.
        """
        plan = self.plan
        return RoundTask(
            mode=plan.mode.value,
            proxy=proxy,
            rows_per_partition=plan.rows_per_partition,
            trouble=str(self.trouble),
            conf={"spark.sql.streaming.stateStore.providerClass": plan.state_store},
            queries=tuple(
                QueryTask(
                    name=one.name,
                    kind=one.plan.kind,
                    queue=self.queue.path,
                    consumer=one.consumer,
                    target=one.target,
                    checkpoint=str(twin(one.checkpoint) if copies else one.checkpoint),
                    by_source=one.plan.by_source,
                    sink={
                        "dyn_batch_size": one.plan.dyn_batch_size,
                        "wire_format": one.plan.wire_format,
                    },
                )
                for one in self.subjects
            ),
        )


def _subject(
    client: YtClient, plan: RoundPlan, query: QueryPlan, queue: Queue, folder: Path
) -> Subject:
    kind = QUERIES[query.kind]
    target = target_path(plan.mode, plan.number, query.name)
    create_table(
        client,
        target,
        columns({**kind.types, BATCH_COLUMN: "int64"}, kind.keys if query.is_sorted else ()),
        **({} if query.is_sorted else {_TABLET_COUNT: plan.tablets}),
    )
    return Subject(
        plan=query,
        query=kind,
        consumer=queue.add_consumer(f"{target}_consumer"),
        target=target,
        ledger=f"{target}_ledger",
        checkpoint=folder / "checkpoints" / query.name,
    )
