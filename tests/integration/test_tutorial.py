"""The tutorial, followed to the letter: every block of it runs, in one shell, in the order of the page."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

pytestmark = pytest.mark.further

PAGE = Path(__file__).parents[2] / "docs/tutorial/first-pipeline.md"
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
INSTALLATION = 2
"""So many blocks install the package, which is there, and make the folder that the test runs in."""


class Shell(AbstractContextManager["Shell"]):
    """A bash that runs one block after the other, and whose output can be waited for."""

    def __init__(self, folder: Path) -> None:
        # What a reader types as `python` and `yt` is what this test runs with.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._bash = subprocess.Popen(
            ["bash", "-e"],
            cwd=folder,
            env={**os.environ, "PATH": path, "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.output = ""

    def __exit__(self, *_: object) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.communicate()

    def run(self, block: str) -> None:
        self._bash.stdin.write(block)
        self._bash.stdin.flush()

    def wait_for(self, text: str) -> None:
        """Read on until the output holds a text."""
        while text not in self.output:
            line = self._bash.stdout.readline()
            assert line, f"the shell ended before {text!r}:\n{self.output}"
            self.output += line


@pytest.mark.nightly  # the demo is killed and compared every time
def test_every_block_of_the_tutorial_runs_and_the_totals_are_exact_after_the_kill(tmp_path):
    """A reader who copies block after block ends with `exact`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with Shell(tmp_path) as shell:
        for number, (language, block) in enumerate(BLOCKS[INSTALLATION:]):
            if language == "python":
                name = re.match(r"# (\w+\.py)\n", block)[1]
                (tmp_path / name).write_text(block, encoding="utf-8")
                continue
            if "kill -9" in block:
                shell.wait_for("batch 2 committed")
            shell.run(block.replace("8000", port))
            if "yt-exactly-once local" in block:
                shell.wait_for("proxy http")
            if not block.startswith("kill %"):
                shell.run(f"echo block {number} done\n")
                shell.wait_for(f"block {number} done")
    killed, finished = shell.output.split('"batch_id"')
    assert "batch 19 committed" not in killed
    assert "batch 19 committed" in finished
    assert "\nexact\n" in finished
