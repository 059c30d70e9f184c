"""The chaos runner's judgement: it must see what is wrong, and draw the same plan from the same seed."""

import json

import pytest

from tests.chaos.checkpoint import copy, keep_true_one, read_cuts
from tests.chaos.oracle import compare
from tests.chaos.plan import DRIVER_KINDS, Kind, Rates, RoundPlan
from tests.chaos.report import summary
from tests.chaos.tally import Tally, error_name
from tests.chaos.weather import COMMIT, CREATE_SESSION, LATE_ERROR, PUSH, WRITES
from tests.flows import Entry
from yt_exactly_once.config import DeliveryMode

FIRST, SECOND, THIRD = (1, 10), (2, 20), (3, 30)
ROWS = [FIRST, SECOND, THIRD]


@pytest.mark.parametrize("mode", DeliveryMode)
@pytest.mark.parametrize("number", [0, 3])
def test_same_seed_gives_the_same_plan(mode, number):
    """A failing seed can be replayed."""
    assert RoundPlan.draw(5, mode, number, Rates()) == RoundPlan.draw(5, mode, number, Rates())


def test_rate_of_one_kind_leaves_the_others_alone():
    """Turning kills off does not turn a failing seed into another one."""
    usual = RoundPlan.draw(5, DeliveryMode.TRANSACTIONAL, 0, Rates())
    gentle = RoundPlan.draw(5, DeliveryMode.TRANSACTIONAL, 0, Rates(kills=0))
    kills = DRIVER_KINDS - {Kind.DRIVER_STOP}
    assert {item.kind for item in gentle.incidents} == set(Kind) - kills
    assert [item for item in usual.incidents if item.kind not in kills] == list(gentle.incidents)


@pytest.mark.parametrize("mode", DeliveryMode)
def test_every_kind_of_incident_is_planned_where_the_mode_can_take_it(mode):
    """Copies of checkpoints may cut batches unlike, which only a transaction sorts out."""
    plan = RoundPlan.draw(5, mode, 0, Rates())
    is_guarded = mode is DeliveryMode.TRANSACTIONAL
    assert set(Kind) - {item.kind for item in plan.incidents} == (
        set() if is_guarded else {Kind.COPY}
    )
    kinds = {query.kind for query in plan.queries}
    assert (kinds == {"stateless"}) == (mode is DeliveryMode.IDEMPOTENT)


@pytest.mark.parametrize("mode", DeliveryMode)
def test_every_weather_answers_errors_after_writes(mode):
    """Each writing command may be carried out and answered with an error, at any time."""
    plan = RoundPlan.draw(5, mode, 0, Rates())
    writes = set(WRITES) - (set() if mode is DeliveryMode.IDEMPOTENT else {PUSH, CREATE_SESSION})
    for weather in plan.weathers:
        late = {rule["command"] for rule in weather.rules if rule["action"] == LATE_ERROR}
        assert late == writes


def test_late_errors_are_summed_up_by_command():
    """Also those that were never met."""
    tally = Tally()
    tally.faults[f"{LATE_ERROR} {COMMIT}"] = 7
    column = tally.to_json()
    shown = summary({"modes": {"transactional": column}, "total": column})
    lines = {
        name: counts for name, *counts in (line.split() or [""] for line in shown.splitlines())
    }
    assert lines[COMMIT] == ["7", "7"]
    assert lines[PUSH] == ["0", "0"]


CHANGED = [FIRST, SECOND, (1, 11)]


@pytest.mark.parametrize(
    ("found", "every", "key", "amount"),
    [
        ([THIRD, FIRST, SECOND], ROWS, None, {}),  # order is checked elsewhere
        ([FIRST, FIRST, THIRD], ROWS, None, {"lost": 1, "duplicated": 1}),
        ([FIRST, FIRST], [FIRST, FIRST], None, {}),  # a row may be equal to another one
        ([FIRST, FIRST, FIRST], [FIRST, FIRST], None, {"duplicated": 1}),
        ([FIRST, SECOND, (3, 31)], ROWS, None, {"lost": 1, "wrong": 1}),
        ([(1, 11), SECOND], CHANGED, 1, {}),
        ([FIRST, SECOND], CHANGED, 1, {"stale": 1}),  # and not lost besides
        ([(1, 12), SECOND], CHANGED, 1, {"wrong": 1}),
        ([SECOND], CHANGED, 1, {"lost": 1}),
    ],
)
def test_every_sort_of_difference_is_counted_once(found, every, key, amount):
    """With a key, a table holds the newest row of each; without, every row as often as it was written."""
    differences = compare(found, every, key)
    assert {name: rows.total() for name, rows in differences.items() if rows} == amount


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("[STREAM_FAILED] x: yt_exactly_once.errors.FencedError: another run", "FencedError"),
        ("[STREAM_FAILED] x [CONCURRENT_STREAM_LOG_UPDATE] y", "CONCURRENT_STREAM_LOG_UPDATE"),
        ("[STREAM_FAILED] terminated with exception: Worker crashed. More", "Worker crashed"),
        ("Something else\nat line 1", "Something else"),
    ],
)
def test_failures_are_counted_by_their_cause(error, name):
    """Our error, else Spark's, else the first words."""
    assert error_name(error) == name


def plan_batches(checkpoint, *ends):
    """Write an offset log as Spark does, for one partition."""
    log = checkpoint / "offsets"
    log.mkdir(parents=True, exist_ok=True)
    for number, end in enumerate(ends):
        (log / str(number)).write_text(f"v1\n{{}}\n{json.dumps({'partitions': {'0': end}})}")


def entry(batch, end):
    """Return the ledger entry of a batch."""
    return Entry(batch, {}, {"//queue": {0: end}}, {}, "t", 0, part=1, part_count=1)


@pytest.fixture
def doubled(tmp_path):
    """A checkpoint and its copy, which have gone on from the first batch on their own."""
    checkpoint = tmp_path / "checkpoint"
    plan_batches(checkpoint, 10)
    copy(checkpoint)
    plan_batches(checkpoint, 10, 15)
    plan_batches(tmp_path / "checkpoint-copy", 10, 18, 20)
    return checkpoint


@pytest.mark.parametrize(
    ("held", "cuts", "copied"),
    [
        (None, [10, 15], False),
        (entry(0, 10), [10, 15], False),
        (entry(1, 15), [10, 15], False),
        (entry(1, 18), [10, 18, 20], True),
        (entry(2, 20), [10, 18, 20], True),
    ],
)
def test_checkpoint_that_the_ledger_speaks_of_is_kept(doubled, held, cuts, copied):
    """Of two drivers with checkpoints of their own, the one that has committed goes on."""
    assert keep_true_one(doubled, "//queue", held) is copied
    assert read_cuts(doubled) == [{0: end} for end in cuts]
    assert [path.name for path in doubled.parent.iterdir()] == [doubled.name]


def test_of_two_checkpoints_that_agree_the_one_that_has_done_more_is_kept(doubled):
    """Its driver may have let the queue trim what the other one still needs."""
    done = doubled.with_name("checkpoint-copy") / "commits"
    done.mkdir()
    (done / "0").touch()
    assert keep_true_one(doubled, "//queue", entry(0, 10)) is True


def test_batch_that_nobody_has_planned_is_noticed(doubled):
    """A ledger that speaks of neither checkpoint is broken."""
    with pytest.raises(RuntimeError, match="Nobody has planned"):
        keep_true_one(doubled, "//queue", entry(1, 17))
