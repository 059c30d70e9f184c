"""Neither the token nor the secret of the gateway leaves a pipeline that runs, by any way that is known."""

import json
import os
import re
import secrets
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from tests.flows import QUEUE_TYPES, Queue, columns, create_table
from yt_exactly_once import cli
from yt_exactly_once.local import LocalCluster

FOLDER = "//tmp/outlets"
PAGES = (
    *("jobs", "stages", "storage", "environment", "executors", "SQL", "StreamingQuery"),
    *("metrics/json", "metrics/executors/prometheus"),
)
RESOURCES = (
    *("environment", "jobs", "stages", "executors", "allexecutors", "storage/rdd"),
    "sql?details=true&planDescription=true&length=1000",
)


@pytest.mark.further
@pytest.mark.timeout(900)
def test_token_and_secret_are_in_no_outlet(tmp_path, monkeypatch, capsys):
    """What others see or keep of a driver, its JVM and its workers is searched. A canary is found."""
    token, secret, canary = (secrets.token_hex(16) for _ in range(3))
    (tmp_path / "events").mkdir()
    with LocalCluster(tmp_path / "cluster", token=token) as cluster:
        plan = _plan(cluster, canary) | {"token": token, "secret": secret, "canary": canary}
        with (
            (tmp_path / "log").open("w") as log,
            subprocess.Popen(
                [sys.executable, "-m", "tests.integration.outlets", str(tmp_path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable},
            ) as driver,
        ):
            driver.stdin.write(json.dumps(plan) + "\n")
            driver.stdin.flush()
            line = driver.stdout.readline()
            assert line, (tmp_path / "log").read_text()[-4_000:]
            told = json.loads(line)
            sent = {path.rpartition("/")[2] for path in cluster.request_counts() if "/api/" in path}
            outlets = dict(_processes(cluster.proxy_pids))
            outlets |= _pages(told) | {"shown by the driver": "\n".join(told["shown"])}
            outlets |= _in_cypress(cluster.client(), f"{FOLDER}/checkpoints")
            monkeypatch.setenv("YT_TOKEN", token)
            outlets |= _commands(cluster.proxy_urls[0], plan["targets"][0], tmp_path, capsys)
            driver.stdin.close()
            assert driver.wait(120) == 0
        outlets["cluster"] = "".join(
            path.read_text(errors="replace") for path in (tmp_path / "cluster").glob("*.log")
        )
    outlets |= _left(tmp_path)
    assert sent - _documented() == {"v3", "v4"} & sent
    found = [name for name, text in outlets.items() if token in text or secret in text]
    assert found == []
    for name in ("ps", "api environment", "log", "events", "shown", "Prometheus"):
        assert any(key.startswith(name) and canary in text for key, text in outlets.items()), name


def _left(folder):
    """Return the files of a driver. Its JVM ends after its Python, and still removes some."""
    found = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            if path.is_file() and "cluster" not in path.parts:
                with suppress(FileNotFoundError):
                    found[str(path.relative_to(folder))] = path.read_bytes().decode("latin-1")
    return found


def _plan(cluster, canary):
    client = cluster.client()
    client.create("map_node", f"{FOLDER}/checkpoints", recursive=True)
    queue = Queue.filled(client, FOLDER, 20)
    schema = columns({name: QUEUE_TYPES[name] for name in ("id", "value")})
    return {
        "proxy": cluster.proxy_urls[0],
        "queue": queue.path,
        "consumers": [queue.add_consumer(f"{FOLDER}/{name}_consumer") for name in "abc"],
        "checkpoints": f"{FOLDER}/checkpoints",
        "targets": [create_table(client, f"{FOLDER}/{name}_{canary}", schema) for name in "ab"],
        "missing": f"{FOLDER}/{canary}",
    }


def _documented():
    """Return the requests in the table of rights."""
    page = (Path(__file__).parents[2] / "docs/security.md").read_text(encoding="utf-8")
    rights = page.partition("| role | object |")[2].partition("A test compares")[0]
    return set(re.findall(r"`([a-z_]+)`", rights))


def _processes(proxies):
    """Yield what other users see of all processes, and environments, except of the proxies of the cluster."""
    yield "ps", subprocess.check_output(["ps", "axww"], text=True)
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) in proxies:
            continue
        for name in ("cmdline", "environ"):
            try:
                yield f"{process.name} {name}", (process / name).read_bytes().decode("latin-1")
            except OSError:
                continue


def _pages(told):
    addresses = {f"page {page}": f"{told['ui']}/{page}/" for page in PAGES}
    resources = f"{told['ui']}/api/v1/applications/{told['app']}"
    addresses |= {f"api {resource}": f"{resources}/{resource}" for resource in RESOURCES}
    addresses["Prometheus"] = told["metrics"]
    found = {}
    for name, address in addresses.items():
        with urllib.request.urlopen(address) as answer:
            found[name] = answer.read().decode()
    return found


def _in_cypress(client, folder):
    """Return the files of all checkpoints."""
    paths = client.search(folder, node_type="file")
    return {f"Cypress {path}": client.read_file(path).read().decode("latin-1") for path in paths}


def _commands(proxy, target, folder, capsys):
    """Return what commands print; their reports are files."""
    found = {}
    for words in (
        ("status", FOLDER, "--report", str(folder / "status.html")),
        ("ledger", "list", FOLDER),
        ("doctor", "--target", target),
    ):
        cli.main([*words, "--proxy", proxy])
        output = capsys.readouterr()
        found[f"command {words[0]}"] = output.out + output.err
    return found
