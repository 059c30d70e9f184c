"""`df.write.format("yt")`: a batch job is written once per application and version."""

import uuid

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

from tests.flows import columns, create_table
from tests.tiers import first_of
from yt_exactly_once import ClusterConfig
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.operations.doctor import queries
from yt_exactly_once.operations.doctor.subject import Subject
from yt_exactly_once.operations.pruning import Use, judge_entries
from yt_exactly_once.operations.status import status
from yt_exactly_once.spark.doors.batch_writer import Job, JobDoor
from yt_exactly_once.ytsaurus.client import Connection

TYPES = {"id": "int64", "value": "int64?"}


@pytest.fixture(params=first_of([False, True]), ids=["ordered", "sorted"])
def target(client, tmp, request):
    """An empty target."""
    path = f"{tmp}/result-{uuid.uuid4()}"
    return create_table(client, path, columns(TYPES, ["id"] if request.param else []))


@pytest.fixture
def ordered(client, tmp):
    """An empty ordered target."""
    return create_table(client, f"{tmp}/result-{uuid.uuid4()}", columns(TYPES))


@pytest.fixture
def save(spark, cluster):
    """Run a job of so many rows; keyword arguments are options."""

    def run(target, rows=100, version=1, how="append", partitions=3, start=0, **options):
        frame = spark.range(start, start + rows, numPartitions=partitions).withColumn(
            "value", sf.col("id") + version
        )
        writer = frame.write.format("yt_exactly_once").option("proxy", cluster.proxy_urls[0])
        given = {"application": "backfill", "version": version, **options}
        for name, value in given.items():
            writer = writer if value is None else writer.option(name, value)
        writer.mode(how).save(target)

    return run


def found(client, path):
    rows = client.select_rows(f"id, [value] from [{path}]")
    return sorted((row["id"], row["value"]) for row in rows)


def expected(rows, version=1, start=0):
    return [(number, number + version) for number in range(start, start + rows)]


def test_job_is_written_once_per_version(save, client, target):
    """Also if the repetition has other rows, and versions are far apart."""
    save(target)
    save(target, rows=50)
    assert found(client, target) == expected(100)
    save(target, rows=10, version=20_261_122, start=1_000)
    assert found(client, target) == expected(100) + expected(10, 20_261_122, 1_000)
    with pytest.raises(AnalysisException, match="Version 20261122 of the application is written"):
        save(target, version=2, rows=10, start=2_000)
    save(target, version=2, rows=10, start=2_000, application="another")
    assert len(found(client, target)) == 120


@pytest.mark.further
def test_tasks_write_a_job_into_a_sorted_table(save, client, tmp, faults):
    """By key, so a repetition changes nothing; only hashes of the keys come to the driver."""
    path = create_table(client, f"{tmp}/sorted", columns(TYPES, ["id"]))
    faults.inject("error", "commit_transaction", code=307, message="no", count=None)
    with pytest.raises(AnalysisException):
        save(path, retry_attempts=1, mode="idempotent")
    faults.clear_faults()
    assert found(client, path) == expected(100)
    for rows in (100, 50, 200):
        save(path, mode="idempotent", rows=rows)
    assert found(client, path) == expected(100)


PUSHED = {"mode": "idempotent", "dyn_batch_size": 20, "retry_attempts": 1, "partitions": 1}


@pytest.mark.further
def test_one_task_writes_a_job_into_an_ordered_table(save, client, ordered, faults):
    """A job that broke off continues with the same rows only; nothing else is pushed or recorded."""
    with pytest.raises(Exception, match=r"Write df.coalesce\(1\)"):
        save(ordered, **{**PUSHED, "partitions": 3})
    faults.inject("error", "push_queue_producer", code=307, message="no", after=2, count=None)
    with pytest.raises(Exception, match="no"):
        save(ordered, **PUSHED)
    faults.clear_faults()
    begun = found(client, ordered)
    assert begun == expected(len(begun))
    assert 0 < len(begun) < 100
    for message, other in (
        ("write the job as another application", {"start": 1}),
        ("gives other rows", {"rows": 0}),
        ("gives other rows|several Spark partitions", {"partitions": 3}),
        ("Rows of version 1 are in the target", {"version": 2}),
        ("written in idempotent mode", {"mode": "transactional"}),
        ("too large", {"version": 2**31, "application": "another"}),
    ):
        with pytest.raises(Exception, match=message):
            save(ordered, **{**PUSHED, **other})
        assert found(client, ordered) == begun
    faults.inject("lose_answer", "push_queue_producer", count=1)
    save(ordered, **{**PUSHED, "dyn_batch_size": 7, "retry_attempts": 3})
    save(ordered, **{**PUSHED, "start": 1})
    assert found(client, ordered) == expected(100)
    save(ordered, **PUSHED, version=2, start=100)
    assert len(found(client, ordered)) == 200


@pytest.mark.further
def test_tools_know_that_a_job_is_no_query(save, cluster, ordered, faults, tmp_path):
    """It has no checkpoint, which a stream that begins behind it would be told to take over."""
    faults.inject("error", "commit_transaction", code=307, message="no", after=1, count=1)
    with pytest.raises(AnalysisException):
        save(ordered, retry_attempts=1, **IN_PARTS)
    faults.clear_faults()
    address = ClusterConfig(proxy=cluster.proxy_urls[0])
    connection = Connection(address)
    subject = Subject(cluster=address, targets=(ordered,), checkpoint=str(tmp_path / "new"))
    looks = (
        "half written: 1 of 3 parts. Run the job",
        "Application backfill has written version 1",
    )
    for done, look in enumerate(looks):
        if done:
            save(ordered, **IN_PARTS)
        (one,) = status(f"{ordered}_ledger", connection=connection)
        assert (one.name, one.entry.batch_id, bool(one.problems)) == ("backfill", 1, not done)
        rows = queries.rows_of_targets(subject, connection)
        (told,) = queries.examine(subject, connection, rows)
        assert look in told.what
        (begins,) = queries.examine_checkpoint(subject, connection, rows)
        assert begins.what.endswith("the query begins")
        (judged,) = judge_entries(connection, f"{ordered}_ledger")
        assert (judged.use, judged.why) == (Use.IN_USE, "its job may be repeated")


IN_PARTS = {"split_oversized": "true", "rows_per_tablet_limit": 40, "dyn_batch_size": 20}


@pytest.mark.further
@pytest.mark.parametrize(
    ("answer", "sizes"), [("lost", []), ("refused", [40, 80])], ids=["lost", "refused"]
)
def test_job_that_ends_at_every_part_goes_on_there(save, client, ordered, faults, answer, sizes):
    """Three parts. A commit whose answer is lost is resolved; one that is refused ends the job."""
    seen = []
    for _ in range(5):
        faults.clear_faults()
        if answer == "lost":
            faults.inject("lose_answer", "commit_transaction", count=None)
        else:
            faults.inject("error", "commit_transaction", code=307, message="no", after=1, count=1)
        try:
            save(ordered, retry_attempts=1, **IN_PARTS)
        except AnalysisException:
            seen.append(len(found(client, ordered)))
            assert found(client, ordered) == expected(seen[-1])
        else:
            break
    faults.clear_faults()
    assert found(client, ordered) == expected(100)
    assert seen == sizes


@pytest.mark.further
def test_unfinished_job_takes_the_same_rows_only(save, client, ordered, faults):
    """What must be the same is compared by digest; a later version waits."""
    faults.inject("error", "commit_transaction", code=307, message="no", after=1, count=1)
    with pytest.raises(AnalysisException):
        save(ordered, retry_attempts=1, **IN_PARTS)
    faults.clear_faults()
    with pytest.raises(AnalysisException, match="LedgerDivergedError"):
        save(ordered, start=1, **IN_PARTS)
    with pytest.raises(AnalysisException, match="1 of 3 parts of version 1 are written"):
        save(ordered, version=2, **IN_PARTS)
    assert found(client, ordered) == expected(40)
    save(ordered, **IN_PARTS)
    assert found(client, ordered) == expected(100)


@pytest.mark.further
def test_mode_overwrite_replaces_the_rows_and_others_are_refused(save, client, tmp, ordered):
    """At once, and once per version; an ordered table cannot be replaced."""
    path = create_table(client, f"{tmp}/sorted", columns(TYPES, ["id"]))
    save(path)
    save(path, rows=30, version=2, how="overwrite", start=90)
    assert found(client, path) == expected(30, 2, 90)
    for how in ("error", "ignore"):
        with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            save(path, version=3, how=how)
    with pytest.raises(AnalysisException, match="sorted"):
        save(ordered, how="overwrite")
    assert found(client, path) == expected(30, 2, 90)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": None}, "no version"),
        ({"application": None}, "no application"),
        ({"version": "soon"}, "whole number"),
        ({"mode": "at-least-once"}, "is for streams"),
        ({"checkpointLocation": "checkpoint"}, "no checkpoint"),
        ({"dyn_batch_sise": "5"}, "Did you mean dyn_batch_size"),
    ],
)
def test_bad_options_of_a_job_are_refused(options, message):
    given = {"path": "//target", "application": "backfill", "version": "1", **options}
    with pytest.raises(ConfigError, match=message):
        JobDoor(Job.parse({k: v for k, v in given.items() if v is not None}, overwrites=False))
