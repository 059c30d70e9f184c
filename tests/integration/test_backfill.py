"""The story of the how-to: more rows than the driver can hold from files, and the stream behind them."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.programs import QUEUE, TARGET, Program
from yt_exactly_once import cli
from yt_exactly_once.local import LocalCluster

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7_200)]

ROWS = int(os.environ.get("YT_EXACTLY_ONCE_BACKFILL_ROWS", "1000000"))
"""Rows in the files; 10,000,000 are the story of the page."""

FILES, NEWER, IN_BOTH = 20, 20_000, 5_000

COMMAND = (
    "spark-submit --master local[2] --driver-memory 1g --conf spark.driver.maxResultSize=8m "
    "--conf spark.ui.enabled=false story.py"
)

STORY = f"""
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.builder.getOrCreate()
history = spark.read.schema("customer string, amount long").parquet("export").coalesce(1)
job = history.write.format("yt").option("application", "backfill").option("version", 1)
job.option("mode", "idempotent").option("digest", "true").mode("append").save("{TARGET}")

orders = spark.readStream.format("yt").option("starting_offsets", '{{"0": {IN_BOTH}}}').load("{QUEUE}")
copy = orders.writeStream.format("yt").option("checkpointLocation", "checkpoint").option("digest", "true")
copy.trigger(availableNow=True).start("{TARGET}").awaitTermination()

amount = sf.col("amount")
found = spark.read.format("yt").load("{TARGET}").agg(
    sf.count(amount), sf.count_distinct(amount), sf.min(amount), sf.max(amount)
)
print("found", *found.head())
"""


def test_files_and_the_stream_behind_them_are_exact_over_kills(tmp_path):
    """Killed twice within the files, at their end, and within the stream."""
    (tmp_path / "export").mkdir()
    step = ROWS // FILES
    for start in range(0, ROWS, step):
        amounts = range(start, start + step)
        rows = pa.table({"customer": [f"c{n % 1000}" for n in amounts], "amount": amounts})
        pq.write_table(rows, tmp_path / "export" / f"{start:08}.parquet")
    (tmp_path / "story.py").write_text(STORY)
    with LocalCluster() as cluster:
        program = Program(cluster, COMMAND.split(), tmp_path)
        end = ROWS - IN_BOTH + NEWER
        program.append(range(ROWS - IN_BOTH, end))
        push, pushes = "push_queue_producer", ROWS // 50_000
        program.run({"action": "lose_answer", "command": push, "after": pushes // 3})
        program.run({"action": "delay", "command": push, "after": pushes // 3, "seconds": 5.0})
        program.run({"action": "lose_answer", "command": "commit_transaction"})
        program.run({"action": "lose_answer", "command": "commit_transaction"})
        assert f"found {end} {end} 0 {end - 1}" in program.run()
        proxy = cluster.proxy_urls[0]
        assert cli.main(["audit", TARGET, "--by", "digest", "--backfill", "--proxy", proxy]) == 0
