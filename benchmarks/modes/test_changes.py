"""Changes into YTsaurus and into Delta Lake: both tables end as the sequence says, or the run fails."""

from __future__ import annotations

import pytest

from benchmarks.modes import changes


@pytest.mark.further
def test_contenders_leave_the_same_table(capsys):
    """The run compares both with what Spark makes of all changes."""
    pytest.importorskip("deltalake")
    assert changes.main(["--batches", "2", "--rows", "60", "--keys", "20"]) == 0
    # The log of tests before goes to the same place.
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[1:]] == [f"| {name}" for name in changes.CONTENDERS]
