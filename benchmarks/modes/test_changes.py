"""Changes into YTsaurus and into Delta Lake: both tables end as the sequence says, or the run fails."""

from __future__ import annotations

import pytest

from benchmarks.modes import changes


@pytest.mark.further
def test_contenders_leave_the_same_table(capsys):
    """The run compares both with what Spark makes of all changes."""
    pytest.importorskip("deltalake")
    assert changes.main(["--batches", "2", "--rows", "60", "--keys", "20"]) == 0
    printed = capsys.readouterr().out
    assert [line.split(" | ")[0] for line in printed.splitlines()[2:5]] == [
        f"| {name}" for name in changes.CONTENDERS
    ]
