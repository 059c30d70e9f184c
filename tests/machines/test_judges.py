"""The judges of a campaign: whether a blow has hit anything, and what is wrong with a log."""

import json

import pytest

from tests.machines.history import History, read_history
from tests.machines.judge import log_damages

_WHOLE = 'v1\n{"batchWatermarkMs":0}\n{"//q":{"0":40}}\n-'


@pytest.mark.parametrize(
    ("offsets", "commits", "said"),
    [
        ({}, {}, []),
        ({"2": _WHOLE}, {}, []),
        ({".3.a.tmp": ""}, {}, []),
        ({"3.copy": _WHOLE}, {}, ["offsets has 3.copy"]),
        ({"1": None}, {}, ["offsets has gaps: [0, 2]"]),
        ({"2": None}, {"2": _WHOLE}, ["more commits than offsets"]),
        ({}, {"1": "(empty)"}, ["commits/1 is torn"]),
        *(({"2": torn}, {}, ["offsets/2 is torn"]) for torn in ("v1", _WHOLE[:-9], _WHOLE[3:])),
    ],
)
def test_judge_finds_what_is_planted(offsets, commits, said):
    """A torn, missing or strange file; what a killed driver may leave is none of them."""
    logs = {
        "offsets": {"0": "", "1": _WHOLE, "2": _WHOLE} | offsets,
        "commits": {"0": _WHOLE, "1": _WHOLE} | commits,
    }
    logs = {
        log: {name: text for name, text in files.items() if text is not None}
        for log, files in logs.items()
    }
    found = log_damages(logs)
    assert len(found) == len(said), found
    assert all(whole.startswith(part) for part, whole in zip(said, found, strict=True))


def test_history_counts_what_the_blows_caused(tmp_path):
    """A line that is half written does not count yet."""

    def task(reason, speculative):
        return {"Task End Reason": {"Reason": reason}, "Task Info": {"Speculative": speculative}}

    events = [
        ("ExecutorAdded", {}),
        ("TaskEnd", task("ExecutorLostFailure", True)),
        ("TaskEnd", task("FetchFailed", False)),
        ("StageCompleted", {"Stage Info": {"Stage Attempt ID": 0}}),
        ("StageCompleted", {"Stage Info": {"Stage Attempt ID": 1}}),
        ("ExecutorRemoved", {"Removed Reason": "Executor killed by driver."}),
        ("ExecutorRemoved", {"Removed Reason": "Command exited with code 137"}),
    ]
    lines = [
        json.dumps({"Event": f"SparkListener{name}", **fields}, separators=(",", ":"))
        for name, fields in events
    ]
    (tmp_path / "app.inprogress").write_text("\n".join([*lines, lines[0]]))
    one_of_each = dict.fromkeys(vars(History()), 1)
    assert read_history(tmp_path) == History(**{**one_of_each, "tasks": 2})
