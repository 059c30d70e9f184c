"""The modules by which Spark finds the formats: what they give it, and what they cost."""

import json
import os
import subprocess
import sys

from yt_exactly_once.spark import static

LOOK_UP = """
import io, json, pickle, struct, sys
from pyspark.sql.worker import lookup_data_sources
before, answer = set(sys.modules), io.BytesIO()
lookup_data_sources._main(io.BytesIO(), answer)
loaded, found, rest = set(sys.modules) - before, {}, io.BytesIO(answer.getvalue())
for _ in range(struct.unpack("!i", rest.read(4))[0]):
    name, source = [rest.read(struct.unpack("!i", rest.read(4))[0]) for _ in range(2)]
    found[name.decode()] = pickle.loads(source).name()
print(json.dumps([found, sorted(loaded)]))
"""
"""What Spark runs with the first use of a Python data source."""

OURS = {
    "pyspark_yt_exactly_once",
    "pyspark_yt_exactly_once_too",
    "yt_exactly_once",
    "yt_exactly_once.spark",
    "yt_exactly_once.spark.data_source",
    "yt_exactly_once.spark.tuning",
    "yt_exactly_once.spark.tuning.collector",
}


def test_spark_finds_both_names_and_loads_nothing_heavy():
    """Every session pays for it that uses any Python data source."""
    environment = {**os.environ, "PYTHONPATH": static.FOLDER, "PYTHONWARNINGS": "ignore"}
    told = subprocess.run(
        [sys.executable, "-c", LOOK_UP], env=environment, capture_output=True, text=True, check=True
    )
    found, loaded = json.loads(told.stdout)
    assert found == {"yt": "yt", "yt_exactly_once": "yt_exactly_once"}
    assert {name for name in loaded if name.startswith(("pyspark_", "yt"))} == OURS
    assert len(loaded) < 40, loaded
