"""Every protection of the real code, taken away alone: the model must see what comes of it."""

import pytest

from tests.model import removals_by_tasks as _others  # noqa: F401 - registers its removals
from tests.model.explore import Explorer
from tests.model.invariants import Kind
from tests.model.removals import REMOVALS, Removal
from tests.model.scenarios import LONG_TO_FIND, LONGEST, named


def _waits(scenario: str, *, further_on: bool) -> list[pytest.MarkDecorator]:
    """Return the mark of a case that does not run every time."""
    if further_on or scenario in LONGEST:
        return [pytest.mark.nightly]
    return [pytest.mark.further] if scenario in LONG_TO_FIND else []


FOUND = [
    pytest.param(
        removal,
        scenario,
        kinds,
        id=f"{removal.what}-{scenario}",
        marks=_waits(scenario, further_on=number > 0),
    )
    for removal in REMOVALS
    for number, (scenario, kinds) in enumerate(removal.found)
]


@pytest.mark.parametrize(("removal", "scenario", "kinds"), FOUND)
def test_a_protection_taken_away_is_found(
    removal: Removal, scenario: str, kinds: set[Kind], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model can see the damage that each protection prevents."""
    removal.apply(monkeypatch.setattr)
    report = Explorer(named(scenario)).explore()
    assert report.violation is not None, str(report)
    assert report.violation.kind in kinds, str(report)
