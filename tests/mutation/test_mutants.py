"""Damages are what they say, and every damaged module can be compiled."""

import pytest

from tests.mutation.__main__ import ROOT, damages, mentions, stages
from tests.mutation.explained import EXPLAINED
from tests.mutation.mutants import mutants_of


@pytest.mark.parametrize(
    ("source", "damaged"),
    [
        ("a < b", ["a <= b"]),
        ("a == b is c", ["a != b is c", "a == b is not c"]),
        ("a and b", ["(a or b)"]),
        ("not a", ["(a)"]),
        ("x = a + 1", ["x = (a - 1)", "x = a + 2"]),
        ("def f(a: int = 1) -> int: ...", ["def f(a: int = 2) -> int: ..."]),
        ('def f(a: int = 1) -> int:\n    """Text."""', []),
        ("f()", ["pass"]),
        ("raise E(1)", ["pass", "raise E(2)"]),
        ("a.b = c", ["pass"]),
        ("x = a if b else c", ["x = a if not (b) else c"]),
        ("[a for a in b if c]", ["[a for a in b if not (c)]"]),
        ("if TYPE_CHECKING: f()", []),
        ('"""Text."""\nx = f"{a + 1}"', []),
        (
            "try:\n    f(a)\nexcept (A, B) as e:\n    x = e",
            [
                "try:\n    pass\nexcept (A, B) as e:\n    x = e",
                "try:\n    f(a)\nexcept (B,) as e:\n    x = e",
                "try:\n    f(a)\nexcept (A,) as e:\n    x = e",
            ],
        ),
    ],
)
def test_every_damage_is_one_small_change(source, damaged):
    """And nothing but what is damaged changes."""
    assert sorted(mutant.source for mutant in mutants_of(source)) == sorted(damaged)


def test_damaged_modules_of_the_protocol_can_be_compiled():
    """Else each of them would be killed for nothing."""
    found = list(damages(["commit", "ytsaurus/transaction"]))
    assert len(found) > 200
    for damage in found:
        compile(damage.mutant.source, damage.path, "exec")


def test_a_damage_meets_the_tests_that_name_its_module_first():
    """They are the cheapest."""
    first, *_ = stages("commit/entry.py")
    assert "tests/unit/test_ledger.py" in first
    assert all((ROOT / test).exists() for stage in stages("commit/entry.py") for test in stage)


@pytest.mark.parametrize(
    ("text", "mentioned"),
    [
        ("import a.b", True),
        ("from a.b import c", True),
        ("from a import c, b", True),
        ("from a import (\n    c,\n    b,\n)", True),
        ("from a import (\n    c,\n)\nimport b", False),
        ("from a import c\nimport b", False),
        ("from a import bc", False),
    ],
)
def test_module_that_is_imported_beside_another_one_is_mentioned(text, mentioned):
    """Who is not imported again goes on with the undamaged module, and finds nothing."""
    assert mentions(text, "a.b") is mentioned


def test_every_explanation_is_of_a_damage_that_exists():
    """A change of the source may leave one without its damage."""
    files = {path.removesuffix(".py") for path, *_ in EXPLAINED}
    assert EXPLAINED.keys() <= {damage.key for damage in damages(sorted(files))}
