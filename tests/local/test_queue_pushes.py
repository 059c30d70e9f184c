"""Pushes of a producer with large bodies, in process."""

import pyarrow as pa
import pytest
import yt.yson

from tests.arrow_streams import stream_of
from tests.in_process import Commands
from tests.kinds import listed, optional
from yt_exactly_once.local import commands
from yt_exactly_once.local.commands.registry import REGISTRY, Context
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import arrow_rows
from yt_exactly_once.local.tables.columnar import PiecewiseRows

ROWS = 5_000
QUEUE, PRODUCER = "//tmp/q", "//tmp/p"


def body(numbers, last=b"[\x01\x04zz;]"):
    """Return rows of lists as Arrow, of which the last one may be something else."""
    values = [yt.yson.dumps([b"x" * 200], yson_format="binary")] * (len(numbers) - 1) + [last]
    fields = [
        pa.field("v", pa.binary(), metadata={b"YtType": b"yson"}),
        pa.field("$sequence_number", pa.int64()),
    ]
    table = pa.table([pa.array(values, pa.binary()), pa.array(numbers)], pa.schema(fields))
    return stream_of(table)


@pytest.fixture
def push(tmp_path):
    """Return what pushes a body, with a session that is open."""
    run = Commands(tmp_path)
    run.table(QUEUE, [{"name": "v", "type_v3": optional(listed("string"))}])
    run("create", type="queue_producer", path=PRODUCER)
    session = {"producer_path": PRODUCER, "queue_path": QUEUE, "session_id": "s"}
    run("create_queue_producer_session", **session)

    def call(data):
        def read_rows(schema):
            rows = arrow_rows.loads(data, schema)
            assert isinstance(rows, PiecewiseRows)
            return rows

        context = Context(run.proxy, "push_queue_producer", {**session, "epoch": 0})
        context.read_rows = read_rows
        return REGISTRY["push_queue_producer"].handler(context)

    assert commands.VERSION
    yield call
    run.close()


@pytest.fixture
def checked(monkeypatch):
    """Return how many values were checked, push by push."""
    counts = []
    stored = arrow_rows._stored

    def count(array, described):
        counts.append(len(array))
        return stored(array, described)

    monkeypatch.setattr(arrow_rows, "_stored", count)
    return counts


def test_each_value_of_a_push_is_read_once(push, checked):
    """Also those of rows that the session has: they are left out, and must be readable."""
    data = body(range(ROWS))
    assert push(data) == {"last_sequence_number": ROWS - 1, "skipped_row_count": 0}
    assert sum(checked) == ROWS
    assert push(data) == {"last_sequence_number": ROWS - 1, "skipped_row_count": ROWS}
    assert sum(checked) == 2 * ROWS


@pytest.mark.parametrize("again", [False, True], ids=["new", "left out"])
def test_value_that_is_no_yson_refuses_the_push_before_its_numbers_are_looked_at(push, again):
    if again:
        push(body(range(ROWS)))
    with pytest.raises(YtError, match="Failed to parse column"):
        push(body(range(ROWS), last=b"?"))
    with pytest.raises(YtError, match="Failed to parse column"):
        push(body([*range(ROWS - 1), 0], last=b"?"))


def test_numbers_that_do_not_increase_are_refused(push):
    with pytest.raises(YtError, match="strictly increasing"):
        push(body([*range(ROWS - 1), 0]))
