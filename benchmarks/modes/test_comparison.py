"""The comparison of two results: it finds what was planted, and nothing in noise."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from benchmarks.modes.__main__ import main
from benchmarks.modes.comparison import (
    NO_DIFFERENCE,
    TOO_FEW,
    NothingToCompareError,
    compare,
    markdown,
    shift,
)
from benchmarks.modes.results import PointResult, Sample

USUAL = {"noop": 0.2, "at-least-once": 0.5, "transactional": 0.4, "idempotent": 0.6}


def run(seed, *, machine=1.0, rounds=7, noise=0.05, point="base", **changed):
    """Return what a run measures: drift that hits a whole round, and noise that hits one turn."""
    chance = random.Random(seed)
    made = PointResult(point, 1000, 70_000, {"time": str(seed), "cores": "2"})
    for number in range(rounds):
        drift = machine * chance.uniform(0.7, 1.4)
        for contender, usual in USUAL.items():
            factor = changed.get(contender.replace("-", "_"), 1.0)
            seconds = usual * factor * drift * chance.lognormvariate(0, noise)
            cpu = {"cluster": seconds / 4, "driver": seconds / 4, "jvm": seconds / 2, "workers": 0}
            made.samples.append(
                Sample(contender, number, seconds, seconds, {}, {}, 1, 1, 1, cpu, 1)
            )
    return {point: made}


def told(found, metric="seconds"):
    """Return the verdicts that are no shrug, by contender."""
    return {
        change.contender: change.verdict
        for change in found.changes
        if change.metric == metric and change.is_change
    }


@pytest.mark.parametrize("seed", range(10))
def test_a_fifth_more_is_found_on_a_slower_machine(seed):
    """And nobody else is blamed, although everything took half as long again."""
    new = run(seed + 1000, machine=1.5, transactional=1.2, noise=0.03)
    found = told(compare(run(seed, noise=0.03), new))
    assert (
        found.pop("noop", "slower") == "slower"
    )  # it is compared with itself: that is the machine
    assert found == {"transactional": "slower"}


def test_a_fifth_less_is_faster_and_less():
    found = compare(run(1, transactional=1.2), run(2))
    assert told(found)["transactional"] == "faster"
    assert told(found, "spark_cpu")["transactional"] == "less"


def test_noise_is_no_change():
    """Of 300 comparisons of a version with itself, the intervals leave the truth out about three times."""
    found = [
        change
        for seed in range(100)
        for change in compare(run(seed, noise=0.1), run(seed + 1000, noise=0.1)).changes
        if change.metric == "seconds" and change.is_relative
    ]
    assert len(found) == 300
    assert sum(not change.low <= 1 <= change.high for change in found) <= 6
    assert sum(change.is_change for change in found) <= 6


def test_a_change_that_is_sure_and_small_is_not_told():
    change = compare(run(1, noise=0.001), run(2, noise=0.001, transactional=1.03)).changes
    (found,) = (
        one for one in change if (one.contender, one.metric) == ("transactional", "seconds")
    )
    assert found.low > 1
    assert found.verdict == NO_DIFFERENCE


def test_intervals_are_those_of_the_tables():
    """Five and five values need all 25 gaps; seven and seven leave four out at each end."""
    assert shift([0.0] * 4, [1.0] * 4) is None
    assert shift([0, 1, 2, 3, 4], [10, 20, 30, 40, 50]) == (6, 28, 50)
    old, new = list(range(7)), [100 * place for place in range(7)]
    gaps = sorted(after - before for before in old for after in new)
    assert shift(old, new) == (gaps[4], gaps[24], gaps[-5])


def test_too_few_rounds_are_said():
    found = compare(run(1, rounds=4), run(2, rounds=4, transactional=3.0))
    assert {change.verdict for change in found.changes} == {TOO_FEW}


def test_what_cannot_be_compared_is_named():
    """Another amount of work, a point without a floor, and points of one side only."""
    old = {**run(1), **run(1, point="rows-1"), **run(1, point="doubled-15625")}
    new = {**run(2), **run(2, point="doubled-15625"), **run(2, point="sorted")}
    for results in (old, new):
        kept = results["doubled-15625"]
        kept.samples = [one for one in kept.samples if one.contender != "noop"]
    new["base"].stamp["cores"] = "4"
    found = compare(old, new)
    assert found.left_out == {
        "rows-1": "only the old result has it",
        "sorted": "only the new result has it",
        "doubled-15625": "it has no contender that the others are divided by",
    }
    assert found.stamps == [("cores", "2", "4")]
    text = "\n".join(markdown(found))
    assert "Not the same: cores: 2 before, 4 now" in text
    assert "| base | noop, by itself |" in text
    new["base"] = replace(new["base"], rows=5)
    with pytest.raises(NothingToCompareError, match="base: its work is another"):
        compare(old, new)


def test_the_command_compares_two_folders(tmp_path, capsys):
    """Results without CPU, of an earlier version, compare by time."""
    for name, results in (("old", run(1)), ("new", run(2, transactional=1.5))):
        (tmp_path / name).mkdir()
        results["base"].samples = [replace(one, cpu={}) for one in results["base"].samples]
        results["base"].save(tmp_path / name)
    folders = [str(tmp_path / name) for name in ("old", "new")]
    assert main(["--compare", *folders, "--json", str(tmp_path / "found.json")]) == 1
    assert "- **Lost**: base, transactional: time 1." in capsys.readouterr().out
    kept = json.loads((tmp_path / "found.json").read_text())
    assert {one["metric"] for one in kept["changes"]} == {"seconds"}
    with pytest.raises(SystemExit):
        main(["--compare", folders[0], str(tmp_path / "nowhere")])
    assert "no results in" in capsys.readouterr().err
