"""The comparison of the modes: turns are taken one at a time, and numbers mean what they say."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import replace

import pytest
import structlog

from benchmarks.modes.__main__ import logged_to, main
from benchmarks.modes.bars import BARS, judged
from benchmarks.modes.design import BY_NAME, POINTS, QUICK
from benchmarks.modes.points import ALL, BASE, DESCRIPTIONS
from benchmarks.modes.report import markdown, to_json
from benchmarks.modes.results import MEMORY, PointResult, Sample, load_all
from benchmarks.modes.stage import Steps
from benchmarks.modes.turns import DirectContender, Gate
from benchmarks.modes.work import SHAPES
from yt_exactly_once.observability import Event
from yt_exactly_once.observability.logs import write


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
        {"3 compute": seconds / 4},
        {"/hosts": requests},
        5,
        4,
        6,
    )


def result(point="base", **seconds):
    made = PointResult(point, 1000, 70_000, {"time": "now", "cores": "2"})
    for contender, values in seconds.items():
        made.samples.append(sample(contender.replace("_", " "), MEMORY, 1000.0))
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
    ratio = measured.ratio("transactional", "noop")
    assert (ratio.low, ratio.middle, ratio.high) == (2, 2, 2)
    assert measured.added("transactional", "noop").middle == 1
    assert measured.ratio("postgres", "noop") is None


def test_nothing_is_a_multiple_of_no_round_trips():
    """The noop sink sends none, and still a difference can be told."""
    measured = result(transactional=[1.0, 1.0])
    measured.samples += [sample("noop", number, 1.0, requests=0) for number in range(2)]
    trips = lambda one: one.round_trips  # noqa: E731 - a metric
    assert measured.ratio("transactional", "noop", trips) is None
    assert measured.added("transactional", "noop", trips).middle == 3


def test_steps_add_up_to_the_turn():
    """What no event tells of is the sink's in the writer, and Spark's around it."""
    steps = sample("transactional", 0, 1.0).all_steps
    assert steps == {"1 identify": 0.25, "3 compute": 0.25, "Spark around it": 0.5}
    assert replace(sample("noop", 0, 1.0), steps={}).all_steps == {}


def test_steps_of_a_batch_are_those_since_it_was_started():
    """Attempts of one batch add up, and a new batch begins anew."""
    steps = Steps()
    for event in (
        "batch.started",
        "ledger.read",
        "batch.computed",
        "transaction.started",
        "transaction.started",
    ):
        steps(event, {})
    assert set(steps.last()) == {"3 compute", "4 open"}
    for event in ("batch.started", "rows.written", "ledger.recorded", "batch.committed"):
        steps(event, {})
    assert set(steps.last()) == {"5 to 8"}


def test_what_is_prepared_for_a_turn_does_not_count():
    """The bare client gets new rows each turn, made before the clock starts."""
    written = []
    contender = DirectContender(
        "bare", lambda turn: [b"rows of turn %d" % turn], written.extend, lambda: len(written)
    )
    for _ in range(2):
        contender.prepare()
        contender.turn()
    assert written == [b"rows of turn 0", b"rows of turn 1"]
    assert contender.rows_written() == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--repetitions", "0"], "not a whole number above zero"),
        (["--repetitions", "-1"], "not a whole number above zero"),
        (["--points", "nowhere"], "invalid choice"),
        (["--quick", "--points", "base"], "not allowed with"),
        (["--points", "composite", "--contenders", "postgres"], "takes part in composite"),
        (["--report-only", "--folder", "/nowhere"], "no results in /nowhere"),
    ],
)
def test_impossible_arguments_are_refused_before_anything_runs(arguments, told, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert told in capsys.readouterr().err


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
    values = {bar.text: (bar, value) for bar, value in judged(results)}
    assert set(values) == {bar.text for bar in BARS}
    assert all(value is not None for _, value in values.values())
    bar, value = next(found for text, found in values.items() if "row snippet" in text)
    assert value.middle == 2.0
    assert bar.verdict(value) == "missed"
    assert bar.verdict(replace(value, middle=5.0, high=6.0)) == "met, narrowly"
    bar, value = next(found for text, found in values.items() if "round trips" in text)
    assert value.middle == 0
    assert bar.verdict(value) == "met"
    assert {bar.verdict(value) for bar, value in judged({})} == {"not measured"}


def replace_rows(found, rows):
    return replace(found, rows=rows)


def test_report_names_everybody_and_what_was_left_out():
    found = result(noop=[1.0, 2.0], row_snippet=[4.0, 8.0])
    text = "\n".join(markdown({"base": found}))
    assert "row snippet | 2 | 167 " in text
    assert "cores 2" in text
    kept = json.loads(json.dumps(to_json({"base": found})))["points"]["base"]
    assert [row["contender"] for row in kept["contenders"]] == ["noop", "row snippet"]
    ratios = kept["contenders"][1]["ratios"]["noop"]
    assert ratios["seconds"]["middle"] == 4
    assert [row["turn_bytes"] for row in kept["contenders"]] == [4, 4]
    assert ratios["3 compute"]["middle"] == 4


def test_report_tells_points_of_several_runs_apart():
    """They cannot be compared, so it must show."""
    one, other = result(noop=[1.0]), result("rows-1000", noop=[1.0])
    assert "several runs" not in "\n".join(markdown({"base": one, "rows-1000": other}))
    other.stamp = {"time": "later", "cores": "2"}
    text = "\n".join(markdown({"base": one, "rows-1000": other}))
    assert "points of several runs" in text
    assert "rows-1000: time later" in text


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


def test_the_line_of_each_batch_is_in_a_file_and_not_between_the_tables(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own
    structlog.reset_defaults()  # other tests capture its logs, which leaves it configured
    with logged_to(tmp_path / "run.log"):
        write(Event.BATCH_COMMITTED, {"batch": 7})
    write(Event.BATCH_COMMITTED, {"batch": 8})

    assert " INFO yt_exactly_once: batch.committed batch=7\n" in (tmp_path / "run.log").read_text()
    assert "batch=7" not in capfd.readouterr().err
