"""A project of Spark Declarative Pipelines, as the how-to shows it: run, killed, and run again."""

import re
from pathlib import Path

import pytest

from tests.integration.programs import MOMENTS, Program, require_exact_over_kills
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.compat.versions import SPARK

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(SPARK < (4, 1), reason="Spark 4.1 is the first with pipelines"),
]

PAGE = Path(__file__).parents[2] / "docs/how-to/pipelines.md"
COMMAND = "run --conf spark.ui.enabled=false --conf spark.sql.catalogImplementation=hive"


@pytest.mark.parametrize("moments", [MOMENTS[:1], MOMENTS], ids=["one", "ten"])
def test_project_of_the_page_is_exact_over_kills(tmp_path, moments):
    """Each run finds new rows, and what the runs before have left."""
    spec, flows = (
        re.search(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
        for kind in ("yaml", "python")
    )
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").write_text(flows)
    spec = spec.replace("/data/pipelines/orders", str(tmp_path / "storage"))
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    with LocalCluster() as cluster:
        program = Program(cluster, ["spark-pipelines", *COMMAND.split()], tmp_path)
        require_exact_over_kills(program, moments, first=10)
