"""The stock `yt` command line against the cluster: queues and consumers, as users type them.

It is the official client with a parser of arguments in front: what other commands ask of the cluster has
tests of its own.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from yt_exactly_once.local import commands  # noqa: F401 - fills the registry

# The stock program is imported once; each command line then runs in a process of its own.
_RUNNER = """
import json, os, sys, tempfile
from yt.cli.yt_binary import main

for line in sys.stdin:
    arguments, given = json.loads(line)
    files = source, out, err = [tempfile.TemporaryFile() for _ in range(3)]
    source.write(given.encode())
    source.seek(0)
    child = os.fork()
    if child == 0:
        for number, stream in enumerate(files):
            os.dup2(stream.fileno(), number)
        sys.stdin = open(0)
        sys.argv = ["yt", *arguments]
        code = 1
        try:
            code = main() or 0
        except SystemExit as stop:
            code = stop.code or 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read().decode())
    print(json.dumps([code, *texts]), flush=True)
"""


@dataclass
class Call:
    """One command line and what it prints.

    Attributes:
        line: what follows `yt --proxy ...`. `{tmp}` is the directory of the test.
        prints: the output, stripped, or a check of it.
        fails: part of the error, when the command must fail.
    """

    line: list[str]
    prints: str | Callable[[str], bool] = ""
    given: str = ""
    fails: str = ""


def yt(line: str, *prints: Any, **rest: Any) -> Call:
    return Call(shlex.split(line), *prints, **rest)


class Terminal:
    """A shell with the `yt` program, pointed at the cluster."""

    def __init__(self, proxy: str, home: Path) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        self._start = ["--proxy", proxy]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUNNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Without the settings and the token of whoever runs the tests.
            env={
                **kept,
                "HOME": str(home),
                "YT_ENABLE_TOKEN": "0",
                # Expected errors come at once, not after minutes of retries; and a tablet
                # transaction lives in one proxy.
                "YT_CONFIG_PATCHES": "{dynamic_table_retries={enable=%false};"
                "proxy={enable_proxy_discovery=%false}}",
            },
        )

    def run(self, line: list[str], given: str) -> tuple[int, str, str]:
        source, output = self._process.stdin, self._process.stdout
        assert source is not None
        assert output is not None
        source.write(json.dumps([[*self._start, *line], given]) + "\n")
        source.flush()
        code, printed, complaint = json.loads(output.readline())
        return code, printed, complaint

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def terminal(cluster, tmp_path_factory):
    opened = Terminal(cluster.proxy_urls[0], tmp_path_factory.mktemp("home"))
    yield opened
    opened.close()


def has(*parts: str) -> Callable[[str], bool]:
    return lambda printed: all(part in printed for part in parts)


def rows(*expected: Any) -> Callable[[str], bool]:
    return lambda printed: [json.loads(line) for line in printed.splitlines()] == list(expected)


def object_id(printed: str) -> bool:
    return ID.fullmatch(printed) is not None


ID = re.compile("[0-9a-f]+(-[0-9a-f]+){3}")
ROW = rows({"$$tablet_index": 0, "$$row_index": 1, "v": "b"})

QUEUES = [
    yt(
        "create table {tmp}/q --attributes {dynamic=%true;schema=[{name=v;type=string}]}", object_id
    ),
    yt("mount-table {tmp}/q --sync"),
    yt("insert-rows {tmp}/q --format json", given='{"v":"a"}\n{"v":"b"}\n'),
    yt("get-tablet-infos {tmp}/q --tablet-indexes 0 --format json", has('"total_row_count":2')),
    yt("pull-queue {tmp}/q --offset 1 --partition-index 0 --format json", ROW),
    yt("create queue_consumer {tmp}/c", object_id),
    yt(
        "pull-queue-consumer {tmp}/c {tmp}/q --offset 0 --partition-index 0 --format json",
        fails="is not registered",
    ),
    yt("register-queue-consumer {tmp}/q {tmp}/c --vital --partitions 0"),
    yt(
        "list-queue-consumer-registrations --queue-path {tmp}/q --format json",
        has("{tmp}/c", '"vital":true'),
    ),
    yt("advance-queue-consumer {tmp}/c {tmp}/q --partition-index 0 --old-offset 0 --new-offset 1"),
    yt(
        "advance-consumer {tmp}/c {tmp}/q --partition-index 0 --old-offset 0 --new-offset 2",
        fails="offset",
    ),
    yt("select-rows '[offset] from [{tmp}/c]' --format json", rows({"offset": 1})),
    yt("pull-consumer {tmp}/c {tmp}/q --offset 1 --partition-index 0 --format json", ROW),
    yt("trim-rows {tmp}/q 0 1"),
    yt("unregister-queue-consumer {tmp}/q {tmp}/c"),
]


def test_command_line_works(terminal, tmp):
    """Every command prints what it prints on a real cluster, and fails where it fails there."""
    for call in QUEUES:
        line, given = [fill(word, tmp) for word in call.line], fill(call.given, tmp)
        code, printed, complaint = terminal.run(line, given)
        seen = f"yt {' '.join(line)}: code {code}\n{printed}\n{complaint}"
        printed = printed.strip().replace(tmp, "{tmp}")
        if call.fails:
            assert code != 0, seen
            assert call.fails in complaint, seen
        else:
            assert code == 0, seen
            assert call.prints(printed) if callable(call.prints) else call.prints == printed, seen


def fill(text: str, tmp: str) -> str:
    return text.replace("{tmp}", tmp)


def test_installed_program_runs(cluster, tmp, tmp_path):
    """What is on the path of users is the same program."""
    program = Path(sys.executable).parent / "yt"
    finished = subprocess.run(
        [sys.executable, program, "--proxy", cluster.proxy_urls[0], "list", "//tmp"],
        env={**os.environ, "HOME": str(tmp_path), "YT_ENABLE_TOKEN": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert tmp.rpartition("/")[2] in finished.stdout.splitlines()
