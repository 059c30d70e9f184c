"""The demo in small: killed, restarted, exact; and its directory served afterwards."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from yt.wrapper import YtClient

from tests.tiers import NIGHTLY
from yt_exactly_once import cli
from yt_exactly_once.demo import schedule, verify
from yt_exactly_once.demo.layout import DELAYS, ENRICHED, QUERIES

_ROWS = 3_000 if NIGHTLY else 1_500
_KILLS = 2 if NIGHTLY else 1


@pytest.fixture
def serve():
    """Run `yt-exactly-once local` over a directory, and give clients of it."""
    running = []

    def serve(data_dir):
        server = subprocess.Popen(
            [
                *[sys.executable, "-m", "yt_exactly_once", "local", "--port", "0"],
                *["--data-dir", str(data_dir), "--proxies", "2"],
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(server)
        proxies = [server.stdout.readline().split() for _ in range(2)]
        assert [word for word, _ in proxies] == ["proxy", "proxy"]
        assert [server.stdout.readline().split()[0] for _ in range(2)] == ["rpc", "rpc"]
        example = server.stdout.readline().split()
        return server, [url for _, url in proxies], example

    yield serve
    for server in running:
        server.kill()
        server.wait()
        server.stdout.close()


@pytest.mark.timeout(900)
def test_small_demo_is_exact_after_its_kills_and_its_directory_can_be_served(
    monkeypatch, tmp_path, capfd, serve
):
    """Every flight once and every statistic right, for the demo's own check and for the stock tools."""
    monkeypatch.setattr(verify, "ROWS_PER_READ", 100)
    # The demo is long so that people can watch it; each life needs only batches for its kill.
    monkeypatch.setattr(schedule, "FEWEST_BATCHES", 1)
    kept = tmp_path / "kept"
    arguments = ["--rows", str(_ROWS), "--kills", str(_KILLS), "--seed", "11"]
    code = cli.main(["demo", *arguments, "--data-dir", str(kept), "--json"])
    output = capfd.readouterr()
    assert code == 0, output.err
    assert json.loads(output.out) | {"seconds": 0} == {
        "rows_in": _ROWS,
        "rows_out": _ROWS,
        "lost": 0,
        "duplicated": 0,
        "wrong": 0,
        "kills": _KILLS,
        "seconds": 0,
        "exact": True,
    }
    assert "Exactly once" in output.err
    for query in QUERIES:
        assert f"rows of {query.name}: {_ROWS} of {_ROWS}" in output.err
    assert f"yt-exactly-once local --data-dir {kept}" in output.err

    server, proxies, example = serve(kept)
    clients = [YtClient(proxy=url, config={"enable_token": False}) for url in proxies]
    assert len(list(clients[0].select_rows(f"* from [{ENRICHED}]"))) == _ROWS
    assert sum(row["flights"] for row in clients[1].select_rows(f"* from [{DELAYS}]")) == 2 * _ROWS
    assert example[:2] == ["try", "yt"]
    listed = subprocess.run(
        [str(Path(sys.executable).parent / "yt"), *example[2:]],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "home" in listed.stdout.split()

    server.send_signal(signal.SIGTERM)
    assert server.wait() == 0


def _processes_naming(path):
    """Return the command lines of living processes in which a path occurs."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_text()
        except OSError:
            continue
        if str(path) in line:
            lines.append(line)
    return lines


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_demo_ended_by_sigterm_leaves_nothing_behind(tmp_path):
    """Neither a process nor its temporary directory outlives the command."""
    with subprocess.Popen(
        [sys.executable, "-m", "yt_exactly_once", "demo", "--rows", "200", "--kills", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as demo:
        assert any("Spark is up" in line for line in demo.stdout)
        assert any("java" in line for line in _processes_naming(tmp_path))
        demo.send_signal(signal.SIGTERM)
        assert demo.wait() == 130
        # Click ends the line in which the terminal shows ^C.
        assert demo.stderr.read() == "\ninterrupted\n"
    assert _processes_naming(tmp_path) == []
    assert list(tmp_path.glob("yt-exactly-once-*")) == []
