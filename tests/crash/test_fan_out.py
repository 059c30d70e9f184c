"""A query whose rows name 244 tables, killed at every crash point: all tables of a batch or none."""

from dataclasses import dataclass, replace

import pytest

from tests.crash.crash_points import CrashPoint
from tests.crash.harness.lives import Cell, Lineage, Remains, Subject
from tests.flows import KEYS, ledger_entries
from yt_exactly_once.config import ClusterConfig, DeliveryMode
from yt_exactly_once.operations.audit.found import By
from yt_exactly_once.operations.audit.run import audit
from yt_exactly_once.operations.ledgers import tables_of
from yt_exactly_once.ytsaurus.client import Connection

ROWS_PER_PARTITION, PARTITIONS = 100, 4
CELL = Cell("stateless", is_sorted=False)
DEATHS = [
    point
    for point in CrashPoint
    if point.value.aftermath(DeliveryMode.TRANSACTIONAL) and point is not CrashPoint.PART_COMMITTED
]
OF_THE_SAME_BATCH = {CrashPoint.LEDGER_READ, CrashPoint.REPLAY_SKIPPED}
"""Only the first batch of a life passes these: the one in which the life before ended."""


@dataclass
class FanOut(Subject):
    """A subject whose target is a path with columns in braces."""

    @property
    def folder(self) -> str:
        return self.plan.target.partition("/{")[0]

    @property
    def ledger(self) -> str:
        return f"{self.folder}/yt_exactly_once_ledger"

    def remains(self) -> Remains:
        """Look at all tables together."""
        entries = ledger_entries(self.client, self.ledger)
        tables = [
            f"{self.folder}/{name}"
            for name in (self.client.list(self.folder) if self.client.exists(self.folder) else [])
            if str(name).endswith("_t")
        ]
        mounted = [path for path in tables if self.client.get(f"{path}/@tablet_state") == "mounted"]
        return Remains(
            rows=sorted(row for path in mounted for row in self.query.found(self.client, path)),
            entry=entries[0] if entries else None,
            stored=self.queue.stored(self.plan.consumer),
        )


@pytest.mark.timeout(1800)
def test_batch_is_in_all_tables_or_in_none_wherever_its_driver_dies(lineage, cluster):
    """Each death in a later batch of the same checkpoint. The tables are created in the first one."""
    rows = (len(DEATHS) + 2) * ROWS_PER_PARTITION
    family = lineage(CELL, rows=rows, rows_per_partition=ROWS_PER_PARTITION, partitions=PARTITIONS)
    (given,) = family.subjects
    path = f"{given.queue.path}_shops/{{key}}_{{part}}_t"
    plan = replace(given.plan, target=path, digest=True, create={})
    subject = FanOut(given.queue, plan, given.trial)
    family = Lineage([subject], family.folder)
    number = -1
    for point in DEATHS:
        number += point not in OF_THE_SAME_BATCH
        (left,) = family.die(point, number)
        cluster.clear_faults()
        assert subject.wrong(left) == "", point
        committed = point.value.aftermath(DeliveryMode.TRANSACTIONAL).committed
        assert (left.entry is not None and left.entry.batch_id == number) == committed, point
    family.finish()
    left = subject.remains()
    assert subject.incomplete(left) == ""
    assert left.stored == subject.queue.ends()
    connection = Connection(ClusterConfig(proxy=cluster.proxy_urls[0]))
    tables, ledger = tables_of(connection, path), subject.ledger
    assert len(tables) == KEYS * PARTITIONS
    audits = [audit(table, by=By.DIGEST, ledger=ledger, connection=connection) for table in tables]
    assert [one for one in audits if not one.exact] == []
