"""A second client: the official JavaScript one, which sends other headers, formats and verbs than Python's.

It comes from npm into a cache folder outside of the tree. Without node and npm, or without a way to the
registry, the test is skipped and says so; `.ci/run` sets `REQUIRE_JAVASCRIPT`, which makes that a failure.
"""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

PACKAGES = ("@ytsaurus/javascript-wrapper@0.5.0", "axios@0.21.4")
SESSION = Path(__file__).parent / "javascript" / "session.cjs"
INSTALL_SECONDS = 300
SESSION_SECONDS = 120


def _give_up(reason):
    if os.environ.get("REQUIRE_JAVASCRIPT"):
        pytest.fail(f"the JavaScript client is required here: {reason}")
    pytest.skip(f"the JavaScript client is not tested: {reason}")


@pytest.fixture(scope="module")
def modules():
    """The folder with the client and what it needs, installed once per machine."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            _give_up(f"{program} is not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "yt-exactly-once"
    name = "+".join(PACKAGES).replace("/", "-")
    if not (cache / name).exists():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=cache))
        command = ["npm", "install", "--prefix", str(fresh), "--no-audit", "--no-fund"]
        command += ["--ignore-scripts", *PACKAGES]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
        if done.returncode:
            shutil.rmtree(fresh)
            _give_up(f"npm could not install it: {done.stderr[-500:]}")
        try:
            fresh.rename(cache / name)
        except OSError:
            shutil.rmtree(fresh)  # another process was faster
    return cache / name / "node_modules"


@pytest.fixture
def session(modules, cluster, client, tmp):
    """What each call of the session gave, by the name it has there."""
    client.write_file(f"{tmp}/file", "содержание\n".encode())
    done = subprocess.run(
        ["node", str(SESSION), cluster.proxy_urls[0].removeprefix("http://"), tmp],
        env={**os.environ, "NODE_PATH": str(modules)},
        capture_output=True,
        text=True,
        timeout=SESSION_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _lines(answer):
    return [json.loads(line) for line in answer.splitlines()]


def _codes(answer):
    """Return the codes of an error and of all inside it."""
    error = answer["error"]
    inner = [code for each in error["inner_errors"] for code in _codes({"error": each})]
    return [error["code"], *inner]


def test_javascript_client_is_served(session, client, tmp):
    """Cypress, rows, tables, transactions and a file: everything that the client offers."""
    assert json.loads(session["create"]).keys() == {"node_id"}
    assert session["get"] == {"value": "текст"}
    assert client.get(f"{tmp}/map/text") == "текст"
    assert session["get old"] == 5
    named = {"$attributes": {"type": "string_node"}, "$value": "text"}
    assert named in session["list"]
    assert session["exists"] is True
    assert session["missing"]["error"]["code"] == 500
    assert session["batch"][0] == {"output": 5}
    assert session["batch"][1]["error"]["code"] == 500

    first, second = _lines(session["select"])
    assert first == {
        "k": {"$type": "int64", "$value": "1"},
        "v": {"$type": "string", "$value": "one"},
        "a": {"list": [{"$type": "int64", "$value": "1"}, None]},
    }
    assert second["a"] is None
    (cut,) = _lines(session["select long"])
    assert cut["v"] == {"$incomplete": True, "$type": "string", "$value": "x" * 1024}
    assert 307 in _codes(session["bad rows"])
    assert "nothing" in session["bad query"]["error"]["message"]
    assert 1702 in _codes(session["insert unmounted"])
    assert [session[name] for name in ("mount", "insert", "insert new", "unmount")] == [""] * 4

    assert _lines(session["read"]) == [{"a": 1}, {"a": 2, "b": "x"}]
    assert _lines(session["read part"]) == [{"a": 2}]

    assert session["exists outside"] is False
    assert session["exists after"] is True
    assert session["exists still"] is True
    assert 11000 in _codes(session["commit aborted"])
    assert session["read file"] == "содержание\n"
