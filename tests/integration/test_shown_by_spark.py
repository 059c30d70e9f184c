"""What Spark itself shows of a query that reads and writes here."""

import json

import pytest

from tests.integration.streams import Heard, finish

pytestmark = pytest.mark.further


def test_spark_shows_the_step_of_a_job_and_how_far_the_source_is_behind(stream, spark):
    """In the description of its jobs, and in the progress of the query."""
    flow = stream(rows=400, rows_per_partition=100, partitions=1)
    query = flow.start(flow.sink(Heard()))
    finish(query)
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    described = [
        job.description().get()
        for job in (jobs.apply(index) for index in range(jobs.size()))
        if job.description().isDefined() and flow.target in job.description().get()
    ]
    assert len(described) == 4
    assert all(
        f"id = {query.id}" in text and text.endswith(f"yt_exactly_once: compute {flow.target}")
        for text in described
    )
    behind = [
        json.loads(source["latestOffset"])["behind"]["rows"]
        if isinstance(source["latestOffset"], str)
        else source["latestOffset"]["behind"]["rows"]
        for progress in query.recentProgress
        for source in progress["sources"]
    ]
    assert behind[:4] == [300, 200, 100, 0]
