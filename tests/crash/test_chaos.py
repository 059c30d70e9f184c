"""The chaos runner: a short run of it, and proof that its reader would see a batch in part."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from benchmarks.chaos.plan import Rates, RoundPlan, folder_path
from benchmarks.chaos.stage import Stage
from benchmarks.chaos.watcher import Watcher
from yt_exactly_once.commit.ledger import LEDGER_SCHEMA
from yt_exactly_once.config import WriteMode

SEED = 7
ROWS = 4


@pytest.mark.timeout(1500)
def test_short_chaos_breaks_no_promise(tmp_path):
    """Faults of many kinds over queries of the default mode, and every row is accounted for."""
    numbers = tmp_path / "report.json"
    options = {
        "--minutes": "0.7",
        "--mode": "transactional",
        "--seed": str(SEED),
        "--kills-per-minute": "3",
        "--folder": str(tmp_path),
        "--json": str(numbers),
    }
    command = [sys.executable, "-m", "benchmarks.chaos"]
    done = subprocess.run(
        command + [word for option in options.items() for word in option],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(numbers.read_text())
    assert report["seed"] == SEED
    total = report["total"]
    assert total["rows_out"] > 0
    assert total["faults_total"] > 0
    assert total["lost"] == total["duplicated"] == total["wrong"] == 0
    assert total["partial_batches_seen"] == 0
    assert list(tmp_path.iterdir()) == [numbers]


@pytest.fixture
def stage(client, tmp_path):
    """The tables of a round with queries of both kinds of target, and their ledgers."""
    plans = (RoundPlan.draw(SEED, WriteMode.IDEMPOTENT, number, Rates()) for number in range(9))
    plan = next(plan for plan in plans if not client.exists(folder_path(plan.mode, plan.number)))
    built = Stage.build(client, plan, tmp_path / "round")
    for subject in built.subjects:
        client.create(
            "table", subject.ledger, attributes={"dynamic": True, "schema": LEDGER_SCHEMA}
        )
        client.mount_table(subject.ledger, sync=True)
    return built


def rows_of(batch, count):
    """Return rows of a stateless query."""
    return [
        {
            "part": 0,
            "row": batch * ROWS + index,
            "id": index,
            "key": index,
            "value": index,
            "name": "x",
            "batch": batch,
        }
        for index in range(count)
    ]


def record(client, subject, stage, batch):
    """Write the ledger entry of a batch as the package writes it."""
    offsets = {"0": [batch * ROWS, (batch + 1) * ROWS, (batch + 1) * ROWS]}
    queue = {"cluster": "local", "queue": stage.queue.path, "consumer": "", "partitions": offsets}
    entry = {
        "query_id": "q",
        "target": subject.target,
        "batch_id": batch,
        "run_id": "r",
        "transaction_id": "t",
        "offsets": [queue],
        "part": 1,
        "part_count": 1,
        "digests": [],
        "row_count": ROWS,
        "committed_at": "",
    }
    client.insert_rows(subject.ledger, [entry])


class Looker:
    """A watcher whose looks are made one by one.

    Args:
        stage: what it watches.
        client: of the cluster.
        is_sorted: which of its targets.
    """

    def __init__(self, stage, client, *, is_sorted):
        self.stage, self.client = stage, client
        self.subject = next(one for one in stage.subjects if one.plan.is_sorted is is_sorted)
        self.watcher = Watcher(stage, client)

    def write(self, batch, count=ROWS):
        """Write rows of a batch."""
        self.client.insert_rows(self.subject.target, rows_of(batch, count))

    def record(self, batch):
        """Write the ledger entry of a batch."""
        record(self.client, self.subject, self.stage, batch)

    def look(self):
        """Look at the target once."""
        self.watcher._look(self.subject)
        assert self.watcher.failed_looks == 0

    def partial(self, final):
        """Stop looking; return the batches that were seen in part."""
        self.watcher.start()
        self.watcher.finish({self.subject.name: Counter(final)})
        return set(self.watcher.partial[self.subject.name])


@pytest.fixture(params=[True, False], ids=["sorted", "ordered"])
def looker(stage, client, request):
    """A watcher of one kind of target."""
    return Looker(stage, client, is_sorted=request.param)


def test_reader_finds_nothing_wrong_with_whole_batches(looker):
    """It must not cry wolf."""
    looker.look()
    for batch in range(3):
        looker.write(batch)
        looker.record(batch)
        looker.look()
    assert looker.partial({0: ROWS, 1: ROWS, 2: ROWS}) == set()


def test_reader_notices_a_recorded_batch_that_is_not_whole(looker):
    """The ledger tells how many rows there must be."""
    looker.write(0, ROWS - 1)
    looker.record(0)
    looker.look()
    assert looker.partial({0: ROWS - 1}) == {0}


def test_reader_notices_rows_that_the_ledger_does_not_know(looker):
    """They were visible before their batch was committed."""
    looker.write(0)
    looker.record(0)
    looker.write(1, ROWS // 2)
    looker.look()
    looker.look()
    assert looker.partial({0: ROWS, 1: ROWS // 2}) == {1}


def test_reader_notices_a_batch_that_grew(looker):
    """Rows of a batch that comes later must all come at once."""
    looker.write(0, ROWS // 2)
    looker.look()
    looker.write(0, ROWS)
    looker.record(0)
    final = ROWS if looker.subject.plan.is_sorted else ROWS + ROWS // 2
    assert looker.partial({0: final}) == {0}
