"""What the witness says of a run: unknown failures and files that lost tests are worse, the rest is known."""

import re
from pathlib import Path

import pytest

from tests.upstream import __main__ as command
from tests.upstream import report

KNOWN = report.Verdicts(((re.compile(r"a\.py::T::test_known"), "WRONG", "other answer"),))


def _judged(test, outcome, why=""):
    record = {"file": "a.py", "test": f"a.py::T::{test}", "outcome": outcome, "why": why}
    return report.judge(record, KNOWN)


@pytest.mark.parametrize(
    ("results", "worse"),
    [
        ([("test_known", "failed"), ("test_x", "passed")], 0),
        ([("test_new", "failed"), ("test_x", "passed")], 1),
        ([("test_x", "skipped")], 1),
        ([("test_x", "passed"), ("test_y", "passed")], 0),
    ],
    ids=["known", "new", "lost", "more"],
)
def test_only_what_got_worse_is_told(results, worse):
    """A known failure is none, a new one is, and so is a test that passed and is skipped now."""
    judged = [_judged(*result) for result in results]
    assert len(report.regressions(judged, {"a.py": 1})) == worse


def test_lists_are_well_formed_and_of_the_same_files():
    """Every verdict compiles and has a known class; every file with a number is run."""
    folder = Path(command.__file__).parent
    verdicts = report.Verdicts.load(folder / "verdicts.tsv")
    assert {kind for _, kind, _ in verdicts.known} <= set(report.CLASSES)
    listed = command._listed(folder / "files.txt")
    assert report.passed_before(folder / "passed.tsv").keys() <= set(listed)


def test_run_without_sources_says_so(tmp_path, capsys, monkeypatch):
    """And does not end like a run in which something got worse."""
    monkeypatch.setattr(command, "_NEEDED", ())
    source = tmp_path / "none.git"
    assert command.main(["--source", str(source), "--folder", str(tmp_path / "f"), "x.py"]) == 2
    assert "does not give the tests" in capsys.readouterr().err
