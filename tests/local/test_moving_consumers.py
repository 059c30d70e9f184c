"""`rewind` and `skip`: where they move a consumer, what they say, and when they refuse."""

import time
from datetime import UTC, datetime

import pytest

from tests.local.pipelines import Pipeline
from yt_exactly_once.errors import ConfigError, ConflictError, OffsetConflictError
from yt_exactly_once.operations.moves import move_consumer, plan_move, require_stopped


@pytest.fixture
def pipeline(cluster, tmp):
    made = Pipeline(cluster, tmp).create()
    made.feed(10)
    made.run(6)
    return made


def plan(pipeline, direction, to, **options):
    return plan_move(
        pipeline.connection,
        direction,
        pipeline.queue,
        pipeline.consumer,
        to,
        ledgers=[pipeline.ledger],
        **options,
    )


def offsets(pipeline):
    rows = pipeline.client.select_rows(f"partition_index, [offset] from [{pipeline.consumer}]")
    return {row["partition_index"]: row["offset"] for row in rows}


@pytest.mark.parametrize(
    ("direction", "to", "moved"),
    [
        ("rewind", "earliest", {0: 0, 1: 2}),
        ("rewind", 4, {0: 4, 1: 4}),
        ("skip", "latest", {0: 10, 1: 10}),
        ("skip", 8, {0: 8, 1: 8}),
    ],
)
def test_consumer_is_moved_in_every_partition(pipeline, direction, to, moved):
    """Rows that are trimmed are not there to go back to."""
    pipeline.client.trim_rows(pipeline.queue, 1, 2)
    found = plan(pipeline, direction, to)
    at_stake = found.repeated if direction == "rewind" else found.lost
    assert at_stake == sum(abs(6 - offset) for offset in moved.values())
    assert found.repeated + found.lost == at_stake
    ((row, meaning),) = found.affected
    assert (row.entry.query_id, row.entry.batch_id) == (pipeline.query, 0)
    assert ("be there twice" in meaning) == (direction == "rewind")
    move_consumer(pipeline.connection, found.source)
    assert offsets(pipeline) == moved
    pipeline.feed(10)
    with pytest.raises(OffsetConflictError) as refused:
        pipeline.run(1)
    assert direction == "skip" or "expected 6" in refused.value.what


def test_consumer_is_moved_to_a_time(pipeline):
    """To the first row that is not older, found without reading all rows."""
    time.sleep(1.1)
    moment = datetime.now(UTC).replace(microsecond=0)
    pipeline.feed(5)
    found = plan(pipeline, "skip", moment)
    assert {move.end for move in found.source.partitions} == {10}
    with pytest.raises(ConfigError, match="no zone"):
        plan(pipeline, "skip", moment.replace(tzinfo=None))
    with pytest.raises(ConfigError, match="nothing to rewind"):
        plan(pipeline, "rewind", moment)


def test_only_the_partitions_that_are_named_are_moved(pipeline):
    """An offset is one of a partition."""
    move_consumer(pipeline.connection, plan(pipeline, "rewind", 1, partitions=[1]).source)
    assert offsets(pipeline) == {0: 6, 1: 1}
    with pytest.raises(ConfigError, match="no partition 2"):
        plan(pipeline, "rewind", 1, partitions=[2])
    with pytest.raises(ConfigError, match="has no row 99"):
        plan(pipeline, "skip", 99)


def test_running_query_is_noticed(pipeline):
    """By its last batch, by what changes between two looks, and by the move itself."""
    found = plan(pipeline, "rewind", "earliest")
    connection = pipeline.connection
    with pytest.raises(ConflictError, match="less than 60 s ago"):
        require_stopped(connection, found, look_seconds=0, quiet_seconds=60)
    with pytest.raises(ConflictError, match="is running"):
        require_stopped(
            connection, found, look_seconds=5, quiet_seconds=0, sleep=lambda _: pipeline.run(1)
        )
    with pytest.raises(ConflictError, match="Stop the query"):
        move_consumer(connection, found.source)
    assert offsets(pipeline) == {0: 7, 1: 7}
    require_stopped(connection, plan(pipeline, "rewind", 0), look_seconds=0, quiet_seconds=0)


def test_command_says_what_it_does_and_refuses_while_the_query_runs(pipeline, told, tmp):
    """The plan comes first; nothing is moved without an answer."""
    place = [pipeline.consumer, pipeline.queue, "--ledger", tmp, "--to"]
    move = ["rewind", *place, "earliest"]
    code, said = told(*move, "--dry-run")
    assert code == 0
    assert "12 committed rows are read again" in said
    assert "rows that are read again will be there twice" in said
    assert "OffsetConflictError" in said
    code, said = told(*move, "--yes", "--force")
    assert (code, "12 rows may get into a target twice" in said) == (2, True)
    move += ["--accept-repeated", "12", "--yes"]
    code, said = told(*move)
    assert (code, "less than 60 s ago" in said) == (2, True)
    assert offsets(pipeline) == {0: 6, 1: 6}
    assert told(*move, "--force", "--json")[1]["moved"]
    assert offsets(pipeline) == {0: 0, 1: 0}
    code, said = told("skip", *place, "ledger", "--yes")
    assert (code, "Its checkpoint continues: start the query as it was" in said) == (0, True)
    assert offsets(pipeline) == {0: 6, 1: 6}
    code, said = told("skip", *place, "yesterday")
    assert (code, "no offset, earliest, latest, ledger or time" in said) == (2, True)


def test_ledger_of_others_that_cannot_be_read_keeps_no_consumer_where_it_is(
    cluster, pipeline, told, tmp
):
    """It may have a query with the consumer, so it is named; it matters only where no other one has."""
    other = Pipeline(cluster, f"{tmp}/other").create()
    other.client.unmount_table(other.ledger, sync=True)
    place = [pipeline.consumer, pipeline.queue, "--ledger", tmp]
    moved = ["--to", "earliest", "--accept-repeated", "12", "--yes", "--quiet", "0", "--wait", "0"]
    code, said = told("rewind", *place, *moved)
    assert (code, f"not read, it may have a query with this consumer: {other.ledger}" in said) == (
        0,
        True,
    ), said
    assert "mount-table" not in said
    code, said = told("skip", *place, "--to", "ledger", "--yes")
    assert code == 0, said
    pipeline.client.remove(pipeline.ledger)
    lost = Pipeline(cluster, f"{tmp}/third").create()
    code, said = told("rewind", *place, *moved)
    assert (code, "Whether a query of theirs moves it is not known" in said) == (2, True), said
    code, said = told("skip", *place, "--to", "ledger")
    assert (code, "these cannot be read" in said) == (2, True), said
    assert told("rewind", *place[:2], "--ledger", lost.ledger, *moved)[0] == 0
    code, said = told("skip", *place[:2], "--ledger", other.ledger, "--to", "latest")
    assert (code, f"yt mount-table {other.ledger}" in said) == (2, True), said
