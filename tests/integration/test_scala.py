"""The Scala of the how-to, pasted into `spark-shell`, where no Python of the user runs."""

import re
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.programs import MOMENTS, TARGET, Program, require_exact_over_kills
from yt_exactly_once.local import LocalCluster

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3_600)]

PAGE = Path(__file__).parents[2] / "docs/how-to/scala-and-sql.md"
BLOCKS = re.findall(r"```scala\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
COPY, JOB, VIEW, FILES, _KAFKA = BLOCKS
COMMAND = "spark-shell --master local[2] --conf spark.ui.enabled=false"

JOBS = {
    "commit_transaction": 'option("split_oversized", "true").option("rows_per_tablet_limit", 100)',
    "push_queue_producer": 'option("mode", "idempotent")',
}
"""Options of a batch job that is written in three parts, each with one request of the command."""


@pytest.fixture
def shell(tmp_path):
    """Returns a program that pastes blocks into spark-shell."""
    with LocalCluster() as cluster:
        program = Program(cluster, COMMAND.split(), tmp_path)

        def pasting(*blocks):
            program.script = "\n".join(blocks).replace("/data/", f"{tmp_path}/")
            return program

        yield pasting


def test_scala_of_the_page_copies_reads_and_writes_once(shell, tmp_path):
    """Pasted twice: the second time finds all of it done."""
    program = shell(COPY, JOB, VIEW, FILES)
    program.append(range(30))
    (tmp_path / "orders").mkdir()
    in_files = [{"customer": "f", "amount": number} for number in range(100, 107)]
    pq.write_table(pa.Table.from_pylist(in_files), tmp_path / "orders" / "one.parquet")
    for _ in range(2):
        assert "sum(amount)" in program.run()
        # The job adds five rows of the result to it.
        assert len(program.amounts()) == 35 + 7
        assert set(program.amounts()) == {*range(30), *range(100, 107)}


@pytest.mark.parametrize("moments", [MOMENTS[:1], MOMENTS], ids=["one", "ten"])
def test_copy_of_the_page_is_exact_over_kills(shell, moments):
    """Each run finds new rows, and what the runs before have left."""
    require_exact_over_kills(shell(COPY), moments)


@pytest.mark.parametrize("command", JOBS)
def test_batch_job_killed_at_every_part_continues_there(shell, command):
    """Before and after each request; the last repetition finds the version, and says so."""
    program = shell(
        'spark.range(300).selectExpr("cast(id AS string) AS customer", "id AS amount").coalesce(1).write.'
        f'format("yt").{JOBS[command]}.option("dyn_batch_size", 100).option("application", "job").'
        f'option("version", 1).mode("append").save("{TARGET}")'
    )
    for part in range(3):
        for action, written in (("lose_request", part), ("lose_answer", part + 1)):
            program.run({"action": action, "command": command})
            # The cluster may still execute the last request.
            while len(program.amounts()) < 100 * written:
                time.sleep(0.05)
            assert program.amounts() == list(range(100 * written))
    program.run()
    assert "batch.skipped" in program.run()
    assert program.amounts() == list(range(300))
