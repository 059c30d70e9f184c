"""The installed wheel without its sources: whole, its cluster answers, its demo is exact; for .ci/wheel."""

import importlib
import importlib.metadata
import pkgutil
import subprocess
import sys
from pathlib import Path

import yt_exactly_once

ROOT = Path(yt_exactly_once.__file__).parent
COMMAND = Path(sys.executable).with_name("yt-exactly-once")
OF_EXTRAS = tuple(
    f"yt_exactly_once.{name}" for name in ("local", "telemetry", "checkpoints.server")
)
FOUND_BY_SPARK = {"pyspark_yt_exactly_once.py", "pyspark_yt_exactly_once_too.py"}


def test_package_is_the_installed_one_and_typed():
    assert ROOT.parent.name == "site-packages"
    assert (ROOT / "py.typed").exists()


def test_wheel_has_the_package_and_its_license_alone():
    files = importlib.metadata.files("yt-exactly-once")
    tops = {file.parts[0] for file in files if not file.parts[0].endswith(".dist-info")}
    assert tops <= {"yt_exactly_once", "..", *FOUND_BY_SPARK}  # the command is in bin
    assert any(file.name == "LICENSE" for file in files)


def modules():
    return [
        module.name
        for module in pkgutil.walk_packages([str(ROOT)], "yt_exactly_once.")
        if not module.name.endswith("__main__")
    ]


def test_alone_everything_can_be_imported_but_what_an_extra_is_for():
    names = [name for name in modules() if not name.startswith(OF_EXTRAS)]
    assert len(names) > 100
    for name in names:
        importlib.import_module(name)
    refused = subprocess.run([COMMAND, "demo"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "its extra 'demo'" in refused.stderr


def test_every_module_can_be_imported():
    for name in modules():
        importlib.import_module(name)


def test_modules_that_spark_looks_for_are_at_the_top():
    names = {importlib.import_module(name[:-3]).DefaultSource.name() for name in FOUND_BY_SPARK}
    assert names == {"yt", "yt_exactly_once"}


def test_command_is_there():
    told = subprocess.run([COMMAND, "--help"], capture_output=True, text=True, check=True)
    assert "local" in told.stdout


def test_cluster_of_the_fixtures_answers(yt_client, yt_local_cluster):
    yt_client.create("map_node", "//tmp/smoke")
    assert yt_local_cluster.client(1).exists("//tmp/smoke")


def test_demo_finds_every_row_once_after_a_kill():
    command = [COMMAND, "demo", "--rows", "20000", "--kills", "1", "--json"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr[-3_000:]
