"""What a user may call before a query of the format yt starts: nothing is left unjudged."""

from tests.integration.calls import JUDGED, calls


def test_every_call_of_the_installed_spark_is_judged():
    """A new one may be ignored silently: run it against the format, then name it in `calls.py`."""
    assert calls() - JUDGED == set()
