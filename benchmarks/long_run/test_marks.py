"""The long run: what has grown is told, and nothing else."""

from __future__ import annotations

import pytest

from benchmarks.long_run.marks import Mark, faults, shares, table

PARTS = ("cluster", "driver", "jvm", "workers")


def marks(seconds, **memory):
    """Return the marks of a run with a share of a million rows per number of seconds."""
    return [
        Mark(
            rows=number * 1_000_000,
            seconds=sum(seconds[:number]),
            cpu=dict.fromkeys(PARTS, 2.0 * number),
            peaks={part: memory.get(part, [100] * 9)[number] * 10**6 for part in PARTS},
            disk=number,
        )
        for number in range(len(seconds) + 1)
    ]


def test_a_share_is_what_lies_between_two_marks():
    found = shares(marks([20.0, 10.0]))
    assert [share.rate for share in found] == [50_000, 100_000]
    assert found[1].cpu == dict.fromkeys(PARTS, 2.0)
    assert list(table(found))[-1].startswith("| 2.0 | 100,000 | 2.0 |")


@pytest.mark.parametrize(
    ("seconds", "memory", "told"),
    [
        ([10, 10, 10, 10], {}, []),
        ([20, 10, 10, 10], {}, []),
        ([10, 10, 10, 12], {}, ["0.83 times the rows/s of the first"]),
        ([10] * 4, {"driver": [50, 90, 100, 105, 109]}, []),
        ([10] * 4, {"driver": [50, 90, 100, 110, 120]}, ["memory of the driver has grown 1.20"]),
        ([10] * 4, {"jvm": [50, 90, 100, 200, 300]}, []),
        ([10, 90], {"cluster": [1, 2, 3]}, []),
    ],
)
def test_what_has_grown_is_told(seconds, memory, told):
    """The first share warms up, and the JVM fills its heap."""
    found = list(faults(shares(marks(seconds, **memory))))
    assert len(found) == len(told)
    assert all(text in fault for text, fault in zip(told, found, strict=True))
