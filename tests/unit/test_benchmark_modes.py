"""The comparison of the modes: turns are taken one at a time, and numbers mean what they say."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from benchmarks.modes.bars import BARS, measured
from benchmarks.modes.points import ALL, BASE, BY_NAME, DESCRIPTIONS, POINTS, QUICK
from benchmarks.modes.report import markdown, to_json
from benchmarks.modes.results import PointResult, Sample, load_all
from benchmarks.modes.turns import Gate
from benchmarks.modes.work import SHAPES


class Query:
    """What a gate needs of a streaming query: it calls the gate for one batch after the other."""

    name = "fake"

    def __init__(self, gate, batches):
        self._thread = threading.Thread(target=self._run, args=(gate, batches), daemon=True)
        self._error = None
        self._thread.start()

    @property
    def isActive(self):  # noqa: N802 - Spark's name
        return self._thread.is_alive()

    def exception(self):
        return self._error

    def join(self):
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self, gate, batches):
        try:
            for number in range(batches):
                gate("frame", number)
        except ValueError as error:
            self._error = error


def sample(contender, repetition, seconds, requests=3):
    return Sample(
        contender,
        repetition,
        seconds,
        seconds / 2,
        {"rows.written": seconds / 4},
        {"/hosts": requests},
        5,
        6,
    )


def result(point="base", **seconds):
    made = PointResult(point, 1000, 70_000, {"time": "now", "cores": "2"})
    for contender, values in seconds.items():
        made.samples += [
            sample(contender.replace("_", " "), number, value)
            for number, value in enumerate(values)
        ]
    return made


def test_a_batch_is_written_in_its_turn_and_not_before():
    """A query that waits writes nothing, and a turn lets one batch through."""
    written = []
    gate = Gate(lambda _, number: written.append(number))
    query = Query(gate, 3)
    gate.wait_for(query)
    assert written == []
    for number in range(2):
        gate.release()
        gate.wait_for(query)
        assert written == list(range(number + 1))
    gate.close()
    query.join()
    assert written == [0, 1]


def test_a_query_that_fails_in_its_turn_ends_the_wait():
    def fail(*_):
        raise ValueError("on purpose")

    gate = Gate(fail)
    query = Query(gate, 2)
    gate.wait_for(query)
    gate.release()
    with pytest.raises(ValueError, match="on purpose"):
        gate.wait_for(query)


def test_ratios_are_taken_within_a_round():
    """A slow round hits both alike and leaves no trace in the ratio."""
    measured = result(noop=[1.0, 10.0, 1.0], transactional=[2.0, 20.0, 2.0])
    ratio = measured.slowdown("transactional", "noop")
    assert (ratio.low, ratio.middle, ratio.high) == (2, 2, 2)
    assert measured.added("transactional", "noop").middle == 1
    assert measured.slowdown("postgres", "noop") is None


def test_results_come_back_from_their_files_in_the_order_of_the_design(tmp_path):
    for point in ("rows-1000", "base"):
        result(point, noop=[1.0, 3.0]).save(tmp_path)
    found = load_all(tmp_path)
    assert list(found) == ["base", "rows-1000"]
    assert found["base"] == result(noop=[1.0, 3.0])


def test_every_bar_is_computed_from_results_that_have_its_points():
    """Each bar has its number, and the bars of throughput know which way is good."""
    results = {
        point.name: replace_rows(
            result(
                point.name,
                **{
                    name.replace(" ", "_"): [{"row snippet": 2.0, "noop": 0.5}.get(name, 1.0)]
                    for name in point.contenders
                    if "-" not in name
                },
            ),
            point.rows,
        )
        for point in POINTS
    }
    for name, found in results.items():
        if "at-least-once" in BY_NAME[name].contenders:
            found.samples.append(sample("at-least-once", 0, 1.0))
    values = {bar.text: (bar, value) for bar, value in measured(results)}
    assert set(values) == {bar.text for bar in BARS}
    bar, value = next(found for text, found in values.items() if "row snippet" in text)
    assert value == 2.0
    assert not bar.is_met(value)
    assert bar.is_met(5.0)
    bar, value = next(found for text, found in values.items() if "round trips" in text)
    assert value == 0
    assert bar.is_met(value)


def replace_rows(found, rows):
    return replace(found, rows=rows)


def test_report_names_everybody_and_what_was_left_out():
    found = result(noop=[1.0, 2.0], row_snippet=[4.0, 8.0])
    text = "\n".join(markdown({"base": found}))
    assert "row snippet | 167 " in text
    assert "cores 2" in text
    kept = to_json({"base": found})["points"]["base"]
    assert [row["contender"] for row in kept["contenders"]] == ["noop", "row snippet"]
    assert kept["contenders"][1]["to_floor"]["middle"] == 4


def test_design_varies_one_dimension_at_a_time():
    """Every point differs from the base point, or from its neighbour in a family, in one dimension."""
    dimensions = ("shape_name", "rows", "partitions", "source", "target", "query")
    families = {"queue": BY_NAME["queue-4"], "tiny": BY_NAME["tiny-queue-4"]}
    for point in POINTS:
        reference = families.get(point.name.partition("-")[0], BASE)
        changed = [name for name in dimensions if getattr(point, name) != getattr(reference, name)]
        if point.name == "stateful":
            changed.remove("target")  # only a sorted table takes totals that change
        if point.name.startswith("tiny"):
            changed = [name for name in changed if name != "rows"]  # one row per partition
        assert len(changed) <= 1, point


def test_quick_points_are_points_of_the_design():
    for point in QUICK:
        full = BY_NAME[point.name]
        assert set(point.contenders) <= set(full.contenders)
        assert replace(point, repetitions=0, contenders=()) == replace(
            full, repetitions=0, contenders=()
        )
        assert point.repetitions >= 5
    assert set(DESCRIPTIONS) == set(ALL)


def test_rows_weigh_what_their_shape_says():
    """Numbers are eight bytes, and the text columns are padded to their width."""
    narrow, wide = SHAPES["narrow"], SHAPES["wide"]
    assert narrow.row_bytes == 4 * 8 + 38
    assert wide.row_bytes == 1024
    assert [column["name"] for column in wide.columns()] == list(wide.expressions)
