"""Events reach the log and the listener; neither may disturb what they tell about."""

import pytest
from structlog.testing import capture_logs

from yt_exactly_once.observability import Event, GuardedListener, emitter, reported


def test_listener_that_raises_is_logged_once_and_called_again():
    """With the event and the exception; later events reach it all the same."""
    heard = []

    def listener(event, _fields):
        heard.append(event)
        raise ValueError("on purpose")

    with capture_logs() as logs:
        guarded = GuardedListener(listener)
        for batch in (1, 2):
            emit = emitter(guarded, batch=batch)
            with reported(emit):
                emit(Event.BATCH_COMMITTED)
    assert heard == ["batch.started", "batch.committed"] * 2
    (failure,) = [log for log in logs if log["event"] == Event.LISTENER_FAILED]
    assert (failure["of"], failure["error"]) == ("batch.started", "ValueError('on purpose')")


def test_failed_batch_shows_no_secret_of_a_gateway():
    """Java's errors quote the location of the checkpoint, and the request."""
    with capture_logs() as logs, pytest.raises(OSError, match="SECRET"), reported(emitter()):
        raise OSError("webhdfs://h:1/SECRET/q: http://h:1/webhdfs/v1/SECRET?op=OPEN")
    (failed,) = [log for log in logs if log["event"] == Event.BATCH_FAILED]
    assert failed["error"] == "webhdfs://h:1/.../q: http://h:1/webhdfs/v1/...?op=OPEN"


def test_failed_batch_names_the_error_of_the_task():
    """Spark wraps it, and its class says nothing."""

    class PythonException(Exception):  # noqa: N818 - Spark's name
        pass

    shown = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "f.py", line 4, in f\nyt_exactly_once.errors.ConflictError: taken: by whom. Wait.'
        "\n\nJVM stacktrace:\norg.apache.spark.SparkException: Job aborted"
    )
    with capture_logs() as logs, pytest.raises(PythonException), reported(emitter()):
        raise PythonException(shown)
    (failed,) = [log for log in logs if log["event"] == Event.BATCH_FAILED]
    assert (failed["reason"], failed["error"]) == ("ConflictError", "taken: by whom. Wait.")


def test_listener_gets_the_bound_fields():
    """And those of the event."""
    heard = []
    emitter(lambda *told: heard.append(told), batch=3)(Event.BATCH_SKIPPED, reason="empty")
    assert heard == [("batch.skipped", {"batch": 3, "reason": "empty"})]
