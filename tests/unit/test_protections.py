"""The switches of the protections: each takes away something that is there, and some test uses it."""

import re
from pathlib import Path

import pytest

from tests.protections import PROTECTIONS

TESTS = Path(__file__).parents[1]


def uses():
    """Return the names that tests switch off, in one Spark session or in a run of chaos."""
    calls = re.compile(r'switch_off\(\s*"(\w+)"|off="(\w+)"')
    files = [*TESTS.rglob("test_*.py"), *TESTS.glob("model/removals*.py")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return {name for text in texts for found in calls.findall(text) for name in found if name}


@pytest.mark.parametrize("name", PROTECTIONS)
def test_switch_replaces_what_is_there(name):
    """A renamed function would make a test of its absence pass for another reason."""
    assert [
        f"{owner.__name__}.{attribute}"
        for owner, attribute, _ in PROTECTIONS[name]()
        if not hasattr(owner, attribute)
    ] == []


def test_every_protection_is_switched_off_by_a_test_of_its_own():
    """A protection that nothing misses protects from nothing, or nobody has looked."""
    assert uses() == set(PROTECTIONS)
