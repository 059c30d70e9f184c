"""Spark's rows while they come, from a stand-in for the JVM: all of them, or an error."""

import struct
from contextlib import nullcontext
from io import BytesIO
from types import SimpleNamespace

import pyarrow as pa
import pytest

from yt_exactly_once.spark import versions

BATCH = pa.record_batch({"id": [1, 2]})


class JobFailedError(Exception):
    """What the JVM tells of a job."""


class Connection:
    """A socket that knows whether it is closed."""

    closed = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True

    def setblocking(self, flag):
        assert flag


@pytest.fixture
def frame(monkeypatch):
    """Make a DataFrame of the bytes that Spark writes to the socket, and of the end of its job."""

    def make(content, failure=None):
        def result():
            assert connection.closed
            if failure is not None:
                raise failure

        connection = Connection()
        told = ("address", "secret", SimpleNamespace(getResult=result))
        monkeypatch.setattr(
            versions, "local_connect_and_auth", lambda *_: (BytesIO(content), connection)
        )
        # Asks the JVM of what kind an error is.
        monkeypatch.setattr(versions, "unwrap_spark_exception", nullcontext)
        java = SimpleNamespace(collectAsArrowToPython=lambda: told)
        return SimpleNamespace(_collect_as_arrow=None, _jdf=java)

    return make


def written(count, *, end=True):
    stream = BytesIO()
    with pa.ipc.new_stream(stream, BATCH.schema) as writer:
        for _ in range(count):
            writer.write_batch(BATCH)
        if not end:
            return stream.getvalue()
    return stream.getvalue()


def order(*places):
    return struct.pack(f">{1 + len(places)}i", len(places), *places)


@pytest.mark.parametrize("places", [(), (0,), (1, 0)])
def test_rows_come_as_they_were_written(frame, places):
    """By partition, in whatever order their tasks end."""
    arriving = versions.ArrivingBatches(frame(written(len(places)) + order(*places)))
    assert list(arriving) == [BATCH] * len(places)
    assert tuple(arriving.order) == places


@pytest.mark.parametrize(
    "content",
    [
        written(2, end=False),
        written(2),
        written(2) + order(0),
        written(2) + order(0, 1)[:-1],
        written(1) + order(0, 1),
        written(2) + struct.pack(">ii4s", -1, 4, b"boom"),
    ],
    ids=["no end", "no order", "fewer", "cut off", "more", "error"],
)
def test_rows_that_are_not_all_there_are_an_error(frame, content):
    """Arrow takes the end of a stream for the end of the rows, and so would lose some silently."""
    with pytest.raises(EOFError, match="Spark gave"):
        list(versions.ArrivingBatches(frame(content)))


def test_error_of_the_job_is_the_one_that_is_raised(frame):
    """It says more than the end of the stream."""
    content = written(1) + struct.pack(">ii4s", -1, 4, b"boom")
    with pytest.raises(JobFailedError):
        list(versions.ArrivingBatches(frame(content, JobFailedError())))
