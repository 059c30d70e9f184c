"""A project of Spark Declarative Pipelines, as the how-to shows it: run, killed, and run again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyspark
import pytest

from yt_exactly_once.demo.child import kill_session
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.versions import SPARK

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(SPARK < (4, 1), reason="Spark 4.1 is the first with pipelines"),
]

PAGE = Path(__file__).parents[2] / "docs/how-to/pipelines.md"
COLUMNS = [{"name": "customer", "type": "utf8"}, {"name": "amount", "type": "int64"}]
QUEUE, TARGET = "//home/shop/orders", "//home/app/result"
ROWS = 20

WRITTEN = "rows are in the target"
MOMENTS = [
    ("Starting run", 0),
    ("large_orders is STARTING", 0),
    ("large_orders is RUNNING", 0),
    ("large_orders is RUNNING", 3),
    ("large_orders has COMPLETED", 0),
    ("Flow copy is STARTING", 0),
    ("Flow copy is RUNNING", 0),
    ("Flow copy is RUNNING", 4),
    (WRITTEN, 0),
    ("Flow copy has COMPLETED", 0),
]
"""What is printed or written before a run is killed, and how many seconds later."""


class Project:
    """The project of the page, in a folder of its own."""

    def __init__(self, folder, cluster):
        spec, flows = (
            re.search(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
            for kind in ("yaml", "python")
        )
        (folder / "transformations").mkdir()
        (folder / "transformations" / "orders.py").write_text(flows)
        spec = spec.replace("/data/pipelines/orders", str(folder / "storage"))
        (folder / "spark-pipeline.yml").write_text(spec)
        self.folder, self.client, self.proxy = folder, cluster.client(), cluster.proxy_urls[0]
        self.appended = 0
        for path in (QUEUE, TARGET):
            attributes = {"dynamic": True, "schema": COLUMNS}
            self.client.create("table", path, recursive=True, attributes=attributes)
            self.client.mount_table(path, sync=True)

    def append(self):
        numbers = range(self.appended, self.appended + ROWS)
        self.client.insert_rows(QUEUE, [{"customer": "c", "amount": n} for n in numbers])
        self.appended += ROWS

    def found(self):
        return Counter(row["amount"] for row in self.client.select_rows(f"amount from [{TARGET}]"))

    def run(self, mark="", seconds=0):
        """Run it, to the end or to the moment of its death; return how it ended and what it printed."""
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_HOME": str(home),
            "YT_PROXY": self.proxy,
        }
        command = [home / "bin" / "spark-pipelines", "run", "--conf", "spark.ui.enabled=false"]
        command += ["--conf", "spark.sql.catalogImplementation=hive"]
        before, log = sum(self.found().values()), self.folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            while process.poll() is None:
                is_written = mark == WRITTEN and sum(self.found().values()) > before
                if mark and (is_written or mark in log.read_text(errors="replace")):
                    time.sleep(seconds)
                    break
                time.sleep(0.05)
        finally:
            kill_session(process)
        return process.returncode, log.read_text(errors="replace")


def test_project_of_the_page_is_exact_over_ten_kills(tmp_path):
    """Each run finds new rows, and what the runs before have left."""
    with LocalCluster() as cluster:
        project = Project(tmp_path, cluster)
        project.append()
        code, log = project.run()
        assert code == 0, log[-3_000:]
        for mark, seconds in MOMENTS:
            project.append()
            code, log = project.run(mark, seconds)
            assert code < 0, f"{mark}: {log[-3_000:]}"
            assert not project.found() - Counter(range(10, project.appended)), mark
        code, log = project.run()
        assert code == 0, log[-3_000:]
        assert project.found() == Counter(range(10, project.appended))
