"""The job that runs before a query needs it: once, and never anybody's problem."""

from structlog.testing import capture_logs

from yt_exactly_once.spark.tuning.warm_up import warm_up


class Context:
    """Takes what is told to Spark."""

    def __init__(self):
        self.descriptions = []
        self.environment = {"PYTHONPATH": "/of/the/user"}

    def setJobDescription(self, text):  # noqa: N802 - Spark's name
        self.descriptions.append(text)

    def setLocalProperty(self, _name, text):  # noqa: N802 - Spark's name
        self.descriptions.append(text)


class Session:
    """A session that ends while the job runs, and has no JVM any more."""

    _jvm = None

    def __init__(self):
        self.sparkContext = Context()
        self.jobs = 0

    def range(self, *_bounds, **_options):
        self.jobs += 1
        raise ConnectionError("the session has ended")


def test_job_that_fails_is_an_event_and_no_more():
    """The query meets the cause itself; an exception of a thread would fail the user's tests."""
    spark = Session()
    with capture_logs() as logs:
        warm_up(spark).join()
    assert sorted(log["reason"] for log in logs) == ["AttributeError", "ConnectionError"]
    assert {
        "event": "warm_up.failed",
        "log_level": "debug",
        "reason": "ConnectionError",
        "error": "the session has ended",
    } in logs
    assert spark.sparkContext.descriptions[-1] is None


def test_context_is_warmed_up_once():
    """Some programs register the format before each query, or on each thread."""
    spark = Session()
    warm_up(spark).join()
    assert warm_up(spark) is None
    assert spark.jobs == 1
    assert spark.sparkContext.environment == {"PYTHONPATH": "/of/the/user"}
    warm_up(Session()).join()
