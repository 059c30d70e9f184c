"""The files for Airflow and Kubernetes that the documentation offers."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs/orchestration"


def test_manifest_is_one_of_kubernetes():
    """By the schemas of Kubernetes, without fields that they do not know."""
    yaml = pytest.importorskip("yaml")
    validator = pytest.importorskip("kubernetes_validate")
    found = list(yaml.safe_load_all((FOLDER / "stream.yaml").read_text(encoding="utf-8")))
    assert {one["kind"] for one in found} >= {"Deployment", "Role", "Service"}
    for one in found:
        validator.validate(one, validator.latest_version(), strict=True)


def test_dag_runs_once_at_a_time_and_takes_its_version_from_the_run():
    """Airflow itself is too large to install for a test. It was tried with this file by hand."""
    text = (FOLDER / "orders_dag.py").read_text(encoding="utf-8")
    (function,) = [one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef)]
    (call,) = function.decorator_list
    given = {one.arg: ast.unparse(one.value) for one in call.keywords}
    assert (given["max_active_runs"], given["catchup"]) == ("1", "False")
    assert "dag_run.run_after" in text


def test_job_of_the_page_reads_the_rows_of_its_version():
    """A new version is written, whatever it has: with all files it would repeat those of earlier ones."""
    page = (FOLDER.parent / "how-to/orchestrate.md").read_text(encoding="utf-8")
    (read,) = [line for line in page.splitlines() if line.startswith("rows = spark.read")]
    assert "{version}" in read
