"""What the demo reports."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from yt_exactly_once.demo.display import Display
from yt_exactly_once.demo.verify import Outcome, Result

_GOOD = Outcome(expected=100, found=100, lost=0, duplicated=0, wrong=0)
_RESULT = Result(
    flights=_GOOD,
    statistics=replace(_GOOD, expected=8, found=8),
    consumed=100,
    kills=5,
    replays=2,
    seconds=61.26,
)


def _printed(show):
    console = Console(file=io.StringIO(), width=100)
    with Display(console) as display:
        show(display)
    return console.file.getvalue()


def test_numbers_for_machines_have_the_promised_names():
    """What --json prints."""
    damaged = replace(
        _RESULT,
        flights=replace(_GOOD, found=99, lost=2, duplicated=1, wrong=3),
        statistics=replace(_GOOD, wrong=4),
    )
    assert damaged.to_json() == {
        "rows_in": 100,
        "rows_out": 99,
        "lost": 2,
        "duplicated": 1,
        "wrong": 7,
        "kills": 5,
        "seconds": 61.3,
        "exact": False,
    }


@pytest.mark.parametrize(
    "damaged",
    [
        replace(_RESULT, flights=replace(_GOOD, lost=1)),
        replace(_RESULT, flights=replace(_GOOD, duplicated=1)),
        replace(_RESULT, statistics=replace(_GOOD, wrong=1)),
        replace(_RESULT, consumed=99),
        replace(_RESULT, consumed=101),
    ],
)
def test_any_damage_is_not_exact(damaged):
    """Either table or the consumer alone spoils the result, and the summary says so."""
    assert not damaged.exact
    assert "NOT exact" in _printed(lambda display: display.summary(damaged))


def test_summary_shows_what_went_in_and_what_came_out():
    """The table at the end names every number."""
    assert _RESULT.exact
    text = _printed(lambda display: display.summary(_RESULT))
    assert "Flights, enriched │     100 │      100 │    0 │          0 │     0" in text
    assert "Kills survived: 5" in text
    assert "Exactly once, in 61 s" in text


def test_progress_without_a_terminal_is_a_line_now_and_then():
    """A log is not flooded, and sees the end."""

    def show(display):
        display.begin("rows", 1_000)
        for done in range(1, 1_001):
            display.advance("rows", done)

    lines = _printed(show).splitlines()
    assert len(lines) == 8
    assert lines[-1] == "rows: 1000 of 1000"
