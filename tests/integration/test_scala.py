"""The Scala of the how-to, pasted into `spark-shell`, where no Python of the user runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from yt_exactly_once.local import LocalCluster

pytestmark = pytest.mark.nightly

PAGE = Path(__file__).parents[2] / "docs/how-to/scala-and-sql.md"
BLOCKS = re.findall(r"```scala\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
COLUMNS = [{"name": "customer", "type": "utf8"}, {"name": "amount", "type": "int64"}]
ROWS = [{"customer": f"c{number % 3}", "amount": number} for number in range(30)]


def paste(blocks, proxy, folder):
    """Run blocks in spark-shell, and return what it prints."""
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "YT_PROXY": proxy,
    }
    script = "\n".join(blocks).replace("/data/", f"{folder}/")
    command = [
        home / "bin" / "spark-shell",
        "--master",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
    ]
    done = subprocess.run(
        command,
        input=script,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    return done.stdout


@pytest.mark.timeout(600)
def test_scala_of_the_page_copies_reads_and_writes_once(tmp_path):
    """Pasted twice: the second time finds all of it done."""
    with LocalCluster() as cluster:
        client = cluster.client()
        for path in ("//home/shop/orders", "//home/app/result"):
            attributes = {"dynamic": True, "schema": COLUMNS}
            client.create("table", path, recursive=True, attributes=attributes)
            client.mount_table(path, sync=True)
        client.insert_rows("//home/shop/orders", ROWS)
        copy, job, view, files, _kafka = BLOCKS
        (tmp_path / "orders").mkdir()
        in_files = [{"customer": "f", "amount": number} for number in range(100, 107)]
        pq.write_table(pa.Table.from_pylist(in_files), tmp_path / "orders" / "one.parquet")
        for _ in range(2):
            printed = paste([copy, job, view, files], cluster.proxy_urls[0], tmp_path)
            assert "sum(amount)" in printed
            found = client.select_rows("customer, amount from [//home/app/result]")
            amounts = [row["amount"] for row in found]
            # The job adds five rows of the result to it.
            assert len(amounts) == 35 + 7
            assert set(amounts) == {row["amount"] for row in ROWS + in_files}
