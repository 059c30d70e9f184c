"""A pipeline that runs with a token and a gateway, and shows itself wherever it can.

`python -m tests.integration.outlets FOLDER` reads its plan from standard input, as a command line would be an
outlet of its own. It says when its batches are through, and ends with its standard input.
"""

import json
import logging
import pickle
import sys
from pathlib import Path

import structlog
from pyspark.sql import SparkSession

from yt_exactly_once import TransactionalSink, exactly_once_error, register_source, serve_metrics
from yt_exactly_once.checkpoints import checkpoints


def main(folder: Path) -> None:
    """Run two queries and one that fails, and show what can be shown of them."""
    plan = json.loads(sys.stdin.readline())
    # Not of all: py4j at DEBUG logs each call into the JVM with its arguments.
    logging.basicConfig(level="INFO", stream=sys.stderr)
    for name in ("yt_exactly_once", "Yt", "urllib3"):
        logging.getLogger(name).setLevel("DEBUG")
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    where = {"proxy": plan["proxy"], "token": plan["token"]}
    with checkpoints(**where, secret=plan["secret"]) as store:
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.port", "0")
            .config("spark.eventLog.enabled", "true")
            .config("spark.eventLog.compress", "false")
            .config("spark.eventLog.dir", (folder / "events").as_uri())
            .config("spark.local.dir", str(folder / "scratch"))
            .config("spark.log.level", "INFO")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.hadoop.canary", plan["canary"])
            .getOrCreate()
        )
        store.configure(spark, plan["checkpoints"])
        metrics = serve_metrics(spark, port=0, host="127.0.0.1")
        register_source(spark)
        read, write, fail = (
            spark.readStream.format("yt")
            .options(**where, consumer_path=consumer)
            .load(plan["queue"])
            .select("id", "value")
            for consumer in plan["consumers"]
        )
        location = f"yt:///{plan['checkpoints'][2:]}"
        sink = TransactionalSink(plan["targets"][0], **where)
        stateful = (
            read.dropDuplicates(["id"])
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", f"{location}/{plan['canary']}")
            .start()
        )
        by_tasks = (
            write.writeStream.format("yt")
            .options(**where, mode="at-least-once", path=plan["targets"][1])
            .option("checkpointLocation", f"{location}/by-tasks")
            .start()
        )
        for query in (stateful, by_tasks):
            query.processAllAvailable()
        failing = (
            fail.writeStream.foreachBatch(TransactionalSink(plan["missing"], **where))
            .option("checkpointLocation", f"{location}/failing")
            .start()
        )
        shown = [repr(store), repr(sink), repr(read), stateful.lastProgress.json]
        try:
            failing.processAllAvailable()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
            reason = exactly_once_error(error)
            shown += [str(error), repr(failing.exception()), repr(reason)]
            shown += [repr(pickle.dumps(reason))]
        # Then Spark tells the listeners of its environment again, with the settings of Hadoop.
        spark.sparkContext.addFile(__file__)
        told = {
            "ui": spark.sparkContext.uiWebUrl,
            "app": spark.sparkContext.applicationId,
            "metrics": f"http://127.0.0.1:{metrics.port}/metrics",
            "shown": shown,
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
