"""The code that README and how-tos show, run as a reader would copy it."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Self

import pytest
from yt.wrapper import YtClient

from tests import flows
from tests.code_blocks import How, blocks, pages
from yt_exactly_once import Target, TransactionalSink, create_table, register_source
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.telemetry import Telemetry

pytestmark = pytest.mark.further

ORDERS = [{"customer": f"c{n % 3}", "amount": n} for n in range(30)]
COMMAND = re.compile(r"(?:python -m ([\w.]+)|(yt-exactly-once [\w-]+))([^&;|\n]*)")


class Shop(LocalCluster):
    """A cluster with the queue and the consumer that a page takes for granted."""

    def __enter__(self) -> Self:
        super().__enter__()
        stock(self.client())
        self.client().create("queue_consumer", "//home/shop/consumer")
        self.client().mount_table("//home/shop/consumer", sync=True)
        return self


def stock(client: YtClient) -> None:
    """Create a queue with orders, and a target for them."""
    for path in ("//home/shop/orders", "//home/app/result"):
        flows.create_table(client, path, flows.columns({"customer": "utf8?", "amount": "int64?"}))
    client.insert_rows("//home/shop/orders", ORDERS)


@pytest.fixture
def names(spark, monkeypatch):
    """The names that a page takes for granted, on a cluster of its own."""
    with LocalCluster() as cluster:
        stock(cluster.client())
        monkeypatch.setenv("YT_PROXY", cluster.proxy_urls[0])
        register_source(spark)
        orders = spark.readStream.format("yt").load("//home/shop/orders")
        given = {
            "Target": Target,
            "TransactionalSink": TransactionalSink,
            "cluster": cluster,
            "create_table": create_table,
            "events": orders,
            "orders": orders,
            "spark": spark,
            "totals_by_customer": lambda rows: rows.groupBy("customer").agg({"amount": "sum"}),
            "totals": orders.groupBy("customer").agg({"amount": "sum"}).toDF("customer", "total"),
        }
        yield given
        for opened in [each for each in given.values() if isinstance(each, Telemetry)]:
            opened.close()


def run_python(code: str, names: dict, folder: Path) -> None:
    """Run a block; a query that it starts runs until its queue is read."""
    code = code.replace("query.awaitTermination()", "query.processAllAvailable()")
    code = code.replace("/data/checkpoints", str(folder))
    names["LocalCluster"] = Shop
    known = set(names)
    exec(compile(code, "the block", "exec"), names)
    for query in names["spark"].streams.active:
        query.processAllAvailable()
        query.stop()
    for test in [
        names.pop(name) for name in sorted(set(names) - known) if name.startswith("test_")
    ]:
        with LocalCluster() as cluster:
            given = {"yt_local_cluster": cluster, "tmp_path": folder}
            arguments = test.__code__.co_varnames[: test.__code__.co_argcount]
            test(**{name: given[name] for name in arguments})


def run_shell(code: str, folder: Path) -> None:
    """Run a block where `yt` and `yt-exactly-once` are those of the tests."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONWARNINGS": "ignore"}
    subprocess.run(["bash", "-e"], cwd=folder, env=environment, input=code, text=True, check=True)


FIRST_READ = ("README.md", "docs/index.md")
"""The other pages are for the night."""

PAGES = [
    pytest.param(page, marks=[pytest.mark.nightly] * (page not in FIRST_READ))
    for page in pages()
    if any(block.how is How.RUNS for block in blocks(page))
]


@pytest.mark.parametrize("page", PAGES)
def test_a_reader_who_copies_the_code_gets_no_error(page, names, tmp_path):
    for number, block in enumerate(blocks(page)):
        folder = tmp_path / str(number)
        folder.mkdir()
        if block.how is How.RUNS and block.language == "python":
            run_python(block.code, names, folder)
        elif block.how is How.RUNS:
            run_shell(block.code, folder)


def test_code_of_the_readme_adds_up_the_queue(names, tmp_path):
    """It is the promise of the whole page."""
    run_python(blocks("README.md")[0].code, names, tmp_path)
    found = names["cluster"].client().select_rows("customer, total from [//home/shop/totals]")
    expected = Counter()
    for row in ORDERS:
        expected[row["customer"]] += row["amount"]
    assert {row["customer"]: row["total"] for row in found} == expected


def commands() -> dict[str, set[str]]:
    """Return the options that pages give to each of our commands."""
    found: dict[str, set[str]] = {}
    for block in [block for page in pages() for block in blocks(page) if block.how is How.OPTIONS]:
        for module, command, rest in COMMAND.findall(block.code.replace("\\\n", " ")):
            options = found.setdefault(f"-m {module}" if module else f"-m {command}", set())
            options |= set(re.findall(r"(?<= )--[a-z-]+", rest.split(" #")[0]))
    return found


@pytest.mark.parametrize(("command", "options"), commands().items())
def test_options_that_a_page_shows_exist(command, options):
    words = command.replace("yt-exactly-once", "yt_exactly_once").split()
    shown = subprocess.run(
        [sys.executable, *words, "--help"], capture_output=True, text=True, check=True
    )
    assert options <= set(re.findall(r"--[a-z-]+", shown.stdout))
