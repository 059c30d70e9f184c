"""New code on the batches of a real checkpoint: each change is judged right, and nothing is written."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import functions as sf

from tests.flows import AGGREGATION, PARTITION_COLUMN, ROW_COLUMN, STATELESS, Queue, read_queue
from yt_exactly_once import Target, TransactionalSink, cli, register_source
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.testing import Judgement, OtherRowsError, Trial, rehearse

pytestmark = [pytest.mark.further, pytest.mark.timeout(600)]

ROWS_PER_PARTITION, BATCHES = 50, 4


def plain(rows):
    return rows.selectExpr(
        f"{PARTITION_COLUMN} as part", f"{ROW_COLUMN} as row", "id", "key", "value", "name"
    )


CHANGES = {
    "said otherwise": (
        lambda rows: rows.select(sf.upper(sf.lower("name")).alias("other"), "*").selectExpr(
            "name",
            "value + 0 as value",
            "key",
            "id",
            f"{ROW_COLUMN} as row",
            f"{PARTITION_COLUMN} as part",
        ),
        Judgement.SAME,
    ),
    "a filter that keeps all": (
        lambda rows: plain(rows.where("id >= 0").repartition(3)),
        Judgement.SAME,
    ),
    "a filter that drops some": (lambda rows: plain(rows.where("value > 0")), Judgement.OTHER),
    "another value": (
        lambda rows: plain(rows).withColumn("value", sf.expr("value div 10 * 10")),
        Judgement.OTHER,
    ),
    "some rows twice": (
        lambda rows: (
            plain(rows)
            .withColumn("n", sf.explode(sf.expr("sequence(1, if(key = 7, 2, 1))")))
            .drop("n")
        ),
        Judgement.OTHER,
    ),
}
"""Changes of the code, and what must be said of each: two are harmless."""


class Pipeline:
    """A pipeline that has run, and the jobs of newer code."""

    def __init__(self, spark, cluster, client, tmp, tmp_path, *, mode="transactional", **target):
        self.client, self.proxy, self.mode = client, cluster.proxy_urls[0], mode
        self.queue = Queue.filled(client, tmp, BATCHES * ROWS_PER_PARTITION, partitions=2)
        self.query = target.pop("query", STATELESS)
        self.is_sorted = target.pop("is_sorted", False)
        self.history = target.pop("history", True)
        self.target, self.other = f"{tmp}/target", f"{tmp}/other"
        self.options = target
        self.query.create_target(client, self.target, is_sorted=self.is_sorted, tablets=2)
        self.trial = Trial("old", tmp_path)
        register_source(spark)
        self.job(self.query.build)(spark, self.trial).awaitTermination()

    def job(self, build):
        proxy, queue, consumer, path = self.proxy, self.queue.path, self.queue.consumer, self.target
        mode, options, output = self.mode, self.options, self.query.output_mode
        history = f"{path}_history" if self.history else None

        def run(spark, trial):
            register_source(spark)
            rows = read_queue(
                spark, proxy, queue, consumer, max_rows_per_partition=ROWS_PER_PARTITION
            )
            sink = TransactionalSink(
                Target(path, **options), proxy=proxy, mode=mode, history_path=history
            )
            return (
                build(rows)
                .writeStream.foreachBatch(sink)
                .outputMode(output)
                .option("checkpointLocation", trial.checkpoint)
                .trigger(availableNow=True)
                .start()
            )

        return run

    def rehearse(self, build, **options):
        return rehearse(self.job(build), self.trial.checkpoint, **options)

    def everything(self):
        """Return all that a run would change."""
        tables = [self.target, f"{self.target}_ledger", self.queue.consumer]
        rows = [sorted(map(str, self.client.select_rows(f"* from [{path}]"))) for path in tables]
        logs = sorted(str(path) for path in self.trial.folder.rglob("*"))
        return rows, logs


@pytest.fixture
def pipeline(spark, cluster, client, tmp, tmp_path):
    def make(**options):
        return Pipeline(spark, cluster, client, tmp, tmp_path, **options)

    return make


def test_five_changes_of_the_code_are_judged_right(pipeline):
    """By the digests of the ledger and of its history; nothing is written."""
    old = pipeline(digest=True)
    before = old.everything()
    for name, (build, judgement) in CHANGES.items():
        found = old.rehearse(build, batches=2)
        assert found.judgement is judgement, (name, str(found))
        assert [one.batch for one in found.batches] == [2, 3], name
        assert {one.by for one in found.batches} == {"the digest in the ledger"}, name
        assert found.same == (judgement is Judgement.SAME)
        assert found.may_change_in_mid_batch is True
    assert old.everything() == before


def sourced(rows):
    return plain(rows).selectExpr("*", f"part as {PARTITION_COLUMN}", f"row as {ROW_COLUMN}")


SOURCED = replace(
    STATELESS,
    types={**STATELESS.types, PARTITION_COLUMN: "int64", ROW_COLUMN: "int64"},
    build=sourced,
)


def test_rows_are_shown_side_by_side_where_the_target_has_their_source(pipeline):
    """Without a digest the rows of the target are the proof."""
    old = pipeline(query=SOURCED, history=False)
    assert old.rehearse(sourced, batches=2).same
    changed = old.rehearse(
        lambda rows: sourced(rows.where("id % 10 > 0")).withColumn(
            "value", sf.expr("if(id = 221, value + 1, value)")
        ),
        batches=2,
    )
    (_, last) = changed.batches
    assert last.judgement is Judgement.OTHER
    assert last.by == "the rows of the target"
    assert (last.old_rows, last.new_rows) == (100, 90)
    shown = [(before and before["id"], after and after["id"]) for before, after in last.examples]
    assert len(shown) == 3
    assert all(before % 10 == 0 and after is None for before, after in shown)
    assert changed.batches[0].only_new == 1
    assert [(old["value"], new["value"]) for old, new in changed.batches[0].examples[:1]] == [
        (221 * 31 % 1000 - 300, 221 * 31 % 1000 - 299)
    ]


def test_rows_of_a_sorted_target_are_compared_by_their_keys(pipeline):
    """Only of the newest batch: later ones may have replaced what differs. What is the same proves little."""
    old = pipeline(query=AGGREGATION, is_sorted=True, history=False)
    assert old.rehearse(AGGREGATION.build, batches=1).judgement is Judgement.UNPROVEN
    changed = old.rehearse(
        lambda rows: AGGREGATION.build(rows).withColumn("n", sf.expr("n + 1")), batches=2
    )
    assert [one.judgement for one in changed.batches] == [Judgement.UNPROVEN, Judgement.OTHER]
    before, after = changed.batches[1].examples[0]
    assert after == {**before, "n": before["n"] + 1}


def test_state_is_that_of_the_batch(pipeline):
    """Spark reads it from the checkpoint, and refuses code that another state is for."""
    old = pipeline(query=AGGREGATION, digest=True)
    assert old.rehearse(AGGREGATION.build).same
    other = old.rehearse(lambda rows: AGGREGATION.build(rows.where("key > 0")), batches=2)
    assert other.judgement is Judgement.OTHER
    by_name = old.rehearse(
        lambda rows: AGGREGATION.build(rows.withColumn("key", sf.expr("cast(key as string)"))),
        batches=1,
    )
    assert by_name.judgement is Judgement.REFUSED
    assert "STATE_STORE" in by_name.batches[0].reason
    assert by_name.may_change_in_mid_batch is False


def test_rows_that_were_trimmed_are_said_to_be_gone(pipeline):
    old = pipeline(digest=True)
    old.client.trim_rows(old.queue.path, 0, ROWS_PER_PARTITION + 1)
    found = old.rehearse(plain)
    assert [one.judgement for one in found.batches] == [
        Judgement.UNREADABLE,
        Judgement.UNREADABLE,
        Judgement.SAME,
        Judgement.SAME,
    ]
    assert "trimmed" in found.batches[0].reason
    with pytest.raises(OtherRowsError, match="trimmed"):
        found.assert_same()


def test_idempotent_mode_is_told_whether_its_code_may_change_in_mid_batch(pipeline):
    """Rows of an unfinished batch may be there, so the new code must write the same ones."""
    old = pipeline(mode="idempotent", digest=True)
    for name in ("3", ".3.crc"):
        (Path(old.trial.checkpoint) / "commits" / name).unlink()
    found = old.rehearse(plain)
    assert (found.unfinished, len(found.batches)) == (3, 3)
    assert found.may_change_in_mid_batch is True
    assert "Batch 3 is such a batch now" in str(found)
    changed = old.rehearse(lambda rows: plain(rows.where("value > 0")))
    assert changed.may_change_in_mid_batch is False
    assert "let the old code finish it" in str(changed)


def test_number_of_rows_alone_proves_nothing(pipeline):
    old = pipeline()
    assert old.rehearse(plain, batches=1).judgement is Judgement.UNPROVEN
    assert (
        old.rehearse(lambda rows: plain(rows.where("id > 9")), batches=4).judgement
        is Judgement.OTHER
    )


def test_job_that_cannot_be_rehearsed_is_refused(pipeline, tmp_path):
    old = pipeline(digest=True)
    by_format = old.job(plain)

    def writes(spark, _trial):
        return spark.readStream.format("rate").load().writeStream.format("noop").start()

    found = rehearse(writes, old.trial.checkpoint, batches=1)
    assert "foreachBatch" in found.batches[0].reason
    wrong = old.rehearse(lambda rows: plain(rows).drop("value"), batches=1)
    assert wrong.judgement is Judgement.REFUSED
    assert "value" in wrong.batches[0].reason
    with pytest.raises(ConfigError, match="no finished batch"):
        rehearse(by_format, str(tmp_path))


def timed(rows):
    return rows.selectExpr(
        f"{PARTITION_COLUMN} as part", f"{ROW_COLUMN} as row", "id", "key", "value", "name",
        "cast(at as timestamp_ntz) as at",
    )  # fmt: skip


LOCAL = replace(STATELESS, types={**STATELESS.types, "at": "timestamp"}, build=timed)


def test_local_times_are_compared_as_they_are_written(pipeline):
    """As instants of the session's time zone."""
    old = pipeline(query=LOCAL, digest=True)
    assert old.rehearse(LOCAL.build, batches=1).same


def twice(path, _other, proxy):
    sink = TransactionalSink(Target(path, digest=True), proxy=proxy)

    def write(rows, number):
        sink(rows, number)
        sink(rows, number)

    return write


def elsewhere(path, other, proxy):
    return TransactionalSink(other, ledger_path=f"{path}_ledger", proxy=proxy)


def replacing(path, _other, proxy):
    return TransactionalSink(Target(path, digest=True, write="replace"), proxy=proxy)


def calling(old, function, location=None):
    """Return a job of the same rows with another function, and perhaps another checkpoint."""
    proxy, queue, consumer = old.proxy, old.queue.path, old.queue.consumer
    path, other, build, output = old.target, old.other, old.query.build, old.query.output_mode

    def run(spark, trial):
        register_source(spark)
        rows = read_queue(spark, proxy, queue, consumer, max_rows_per_partition=ROWS_PER_PARTITION)
        query = build(rows).writeStream.foreachBatch(function(path, other, proxy))
        query = query.outputMode(output).option("checkpointLocation", location or trial.checkpoint)
        return query.start()

    return run


def test_what_real_sinks_would_refuse_or_leave_out_is_no_success(pipeline):
    """A second call for a target, a target without rows, an option that the query does not allow."""
    old = pipeline(query=AGGREGATION, is_sorted=True, digest=True)
    old.query.create_target(old.client, old.other, is_sorted=True)
    before, found = old.everything(), {}
    for function in (twice, elsewhere, replacing):
        job = calling(old, function)
        some = rehearse(job, old.trial.checkpoint, batches=1).batches
        found[function] = [(one.target, one.judgement) for one in some]
    assert found == {
        twice: [(old.target, Judgement.SAME), (old.target, Judgement.REFUSED)],
        elsewhere: [(old.other, Judgement.UNPROVEN), (old.target, Judgement.OTHER)],
        replacing: [(old.target, Judgement.REFUSED)],
    }
    (real,) = rehearse(
        calling(old, twice, old.trial.checkpoint), old.trial.checkpoint, batches=1
    ).batches
    assert "trial.checkpoint" in real.reason
    assert old.everything() == before


SHOP = """
from yt_exactly_once import Target, TransactionalSink


def job(spark, trial):
    reader = spark.readStream.format("yt").option("proxy", "{proxy}")
    reader = reader.option("consumer_path", "{consumer}").option("include_service_columns", "true")
    rows = reader.load("{queue}").selectExpr(
        "__spyt_streaming_src_tablet_index as part", "__spyt_streaming_src_row_index as row",
        "id", "key", "value", "name",
    )
    sink = TransactionalSink(Target("{target}", digest=True), proxy="{proxy}")
    query = rows.where("id <> {without}").writeStream.foreachBatch(sink)
    return query.option("checkpointLocation", trial.checkpoint).start()
"""


@pytest.mark.parametrize(("without", "code"), [(-1, 0), (399, 1)])
def test_command_compares_the_code_of_a_module(
    pipeline, tmp_path, monkeypatch, capfd, without, code
):
    """The exit code is that of a check."""
    old = pipeline(digest=True)
    named = {"proxy": old.proxy, "consumer": old.queue.consumer, "queue": old.queue.path}
    module = f"shop_{code}"
    (tmp_path / f"{module}.py").write_text(SHOP.format(**named, target=old.target, without=without))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    arguments = ["rehearse", f"{module}:job", old.trial.checkpoint, "--batches", "1", "--json"]
    assert cli.main(arguments) == code
    found = json.loads(capfd.readouterr().out)
    assert found["same"] == (code == 0)
    assert found["batches"][0]["new_rows"] == 100 - code
