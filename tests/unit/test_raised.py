"""Errors on their way out: the message comes first, and Spark's text leads back to the error."""

import traceback

import pytest

from yt_exactly_once import errors, exactly_once_error
from yt_exactly_once.spark.compat.raised import keep_error, raised_to_spark

RUN = "11111111-2222-3333-4444-555555555555"


def deep_error():
    """An error as `run_attempts` raises it, with frames and causes of others."""
    try:
        try:
            try:
                raise OSError("x\n" * 60)  # noqa: TRY301 - of the client
            except OSError as error:
                raise errors.ConflictError("Lost the race", batch=7) from error
        except errors.ConflictError as error:
            raise errors.RetriesExhaustedError(
                "Gave up after 2 attempts", remedy="Start again", batch=7
            ) from error
    except errors.RetriesExhaustedError as error:
        return error


def printed(error):
    """Return what py4j makes of an error."""
    try:
        raise raised_to_spark(error)
    except errors.RetriesExhaustedError:
        return traceback.format_exc()


def test_message_is_the_first_line_that_is_printed():
    """Then one frame of whoever raised it; nothing of the attempts, nothing of the client."""
    error = deep_error()
    first, *others = printed(error).splitlines()
    assert first == (
        "yt_exactly_once.errors.RetriesExhaustedError: Gave up after 2 attempts [batch=7]. Start again."
    )
    assert len(others) < 10
    assert not any("ConflictError" in line or "OSError" in line for line in others)


def test_surfaced_error_keeps_its_class_and_what_the_client_raised():
    """`__cause__` is set, and `remote` is the first exception that is not ours."""
    error = raised_to_spark(deep_error())
    assert type(error) is type(error.__cause__) is errors.RetriesExhaustedError
    assert error.__cause__.where == {"batch": 7}
    assert isinstance(error.remote, OSError)
    assert raised_to_spark(error).remote is error.remote


@pytest.mark.timeout(10)
def test_error_that_was_raised_from_itself_surfaces():
    """A function of the user may do that, and the driver must not hang."""
    error = errors.RequestRefusedError("Refused")
    error.__cause__ = error
    assert raised_to_spark(error).remote is None


def test_sparks_exception_leads_back_to_the_very_error():
    """In the driver's process, by the run that Spark names."""
    error = errors.FencedError("A newer run owns the ledger", query="q")
    keep_error(RUN, error)
    spark = Exception(f"[STREAM_FAILED] Query [id = x, runId = {RUN}] terminated: {error}")
    assert exactly_once_error(spark) is error
    assert exactly_once_error(error) is error
    wrapped = RuntimeError("of the user")
    wrapped.__cause__ = error
    assert exactly_once_error(wrapped) is error


def test_kept_error_is_not_taken_for_another_one():
    """A run may end with an error of the source after one of the sink was swallowed."""
    keep_error(RUN, errors.FencedError("Swallowed"))
    text = f"runId = {RUN}\nyt_exactly_once.errors.TableNotFoundError: There is no such table."
    assert type(exactly_once_error(Exception(text))) is errors.TableNotFoundError


@pytest.mark.parametrize(
    "error",
    [
        errors.TableNotFoundError("There is no such table", path="//home/t", remedy="Check the path"),
        errors.ClusterUnavailableError("No answer (reset), at all", proxy="http://a:1", queue="//q[1]"),
        errors.SchemaMismatchError("Two differ", target="//t", remedy="Cast. Or", details=["a | b", "c"]),
        errors.FencedError("Stop"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "tail",
    [
        "",
        "\n\nThe above exception was the direct cause of",
        "\n\tat org.apache.spark.x",
        "\n SQLSTATE: 38000",
    ],
)
def test_text_of_another_process_is_read(error, tail):
    """Class, message, ids and remedy."""
    name = f"{type(error).__module__}.{type(error).__name__}"
    found = exactly_once_error(Exception(f"[X] Failed when running source: {name}: {error}{tail}"))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


@pytest.mark.parametrize("text", ["", "ValueError: no", "OSError: yt", "ExactlyTwiceError: x"])
def test_other_exceptions_carry_none(text):
    """Whoever asks decides what to do with them."""
    assert exactly_once_error(Exception(text)) is None


def test_errors_of_many_runs_are_not_kept_for_ever():
    """The oldest ones go."""
    error = errors.FencedError("x")
    for number in range(150):
        keep_error(f"{number:036}", error)
    found = [exactly_once_error(Exception(f"runId = {run:036}: {error}")) for run in (0, 149)]
    assert [one is error for one in found] == [False, True]
