"""The judge of the logs finds each damage that is planted."""

import pytest

from tests.checkpoints.judge import log_damages

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
