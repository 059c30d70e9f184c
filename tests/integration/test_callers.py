"""However users call the sink, on a real Spark: the target is exact, or an error was raised.

The holes that show in real plans alone, and some generated programs; thousands of them run without Spark in
`tests/callers`.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, note, settings

from tests.callers.holes import HOLES, HOLES_OF_PLANS
from tests.callers.on_spark import OnSpark
from tests.callers.strategies import programs_on_spark
from tests.tiers import first_of

pytestmark = pytest.mark.further

IS_DEEP = settings.get_current_profile_name() == "deep"
EXAMPLES = 200 if IS_DEEP else 2


@pytest.fixture(scope="module")
def deploy(spark, cluster, client, tmp_path_factory):
    """Run a program on Spark."""
    from yt_exactly_once import register_source

    register_source(spark)
    folder = tmp_path_factory.mktemp("callers")

    def run(program):
        OnSpark(program, spark, cluster, client, folder).deploy()

    return run


@pytest.mark.parametrize("name", first_of(HOLES_OF_PLANS, count=2))
def test_a_shuffle_is_found_wherever_it_hides(deploy, name):
    """Each way in which a plan has hidden a shuffle, and rows were lost and repeated."""
    deploy(HOLES_OF_PLANS[name])


@pytest.mark.nightly
def test_the_oracle_has_the_same_eyes_on_spark(deploy):
    """One of the holes that are found without Spark, to compare the two forms."""
    deploy(HOLES["1: one sink called from two threads"])


def test_the_target_is_exact_or_an_error_was_raised(deploy):
    """Whatever a function does, in whatever deployment, nobody loses or repeats rows unknowingly."""

    # Shrinking would take minutes; such a program is short enough to be read as it is.
    once = [Phase.generate]

    @settings(max_examples=EXAMPLES, derandomize=not IS_DEEP, database=None, phases=once)
    @given(programs_on_spark())
    def check(program):
        note(repr(program))
        deploy(program)

    check()
