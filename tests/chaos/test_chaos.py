"""The chaos runner: a short run keeps every promise."""

import json
import subprocess
import sys

import pytest

SEED = 7


def run_chaos(folder, *flags, **options):
    """Run it; return how it ended, what it said, and its report."""
    numbers = folder / "report.json"
    given = {"seed": SEED, "mode": "transactional", "folder": folder, "json": numbers} | options
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *flags, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr, json.loads(numbers.read_text())


@pytest.mark.nightly  # the demo kills at random moments every time
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("flags", [[], ["--by-tasks"]])
def test_short_chaos_breaks_no_promise(tmp_path, flags):
    """Faults of many kinds over queries of the default mode, and every row is accounted for."""
    code, said, report = run_chaos(tmp_path, *flags, minutes=0.5)
    assert code == 0, said
    assert report["seed"] == SEED
    total = report["total"]
    assert total["rows_out"] > 0
    assert total["faults_total"] > 0
    assert total["lost"] == total["duplicated"] == total["wrong"] == 0
    assert total["partial_batches_seen"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
