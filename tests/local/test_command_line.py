"""The stock `yt` command line against the cluster: queues and consumers, as users type them.

It is the official client with a parser of arguments in front: what other commands ask of the cluster has
tests of its own.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.local.operated import run_yt

ROW = '{"$$tablet_index":0,"$$row_index":1,"v":"b"}'
AT_1 = "--offset 1 --partition-index 0 --format json"
MOVE = "--partition-index 0 --old-offset 0 --new-offset"

LINES = [
    ("create table {tmp}/q --attributes {{dynamic=%true;schema=[{{name=v;type=string}}]}}", "-"),
    ("mount-table {tmp}/q --sync", ""),
    ("insert-rows {tmp}/q --format json", ""),
    ("get-tablet-infos {tmp}/q --tablet-indexes 0 --format json", '"total_row_count":2'),
    (f"pull-queue {{tmp}}/q {AT_1}", ROW),
    ("create queue_consumer {tmp}/c", "-"),
    (f"pull-queue-consumer {{tmp}}/c {{tmp}}/q {AT_1}", "fails: is not registered"),
    ("register-queue-consumer {tmp}/q {tmp}/c --vital --partitions 0", ""),
    ("list-queue-consumer-registrations --queue-path {tmp}/q --format json", '"vital":true'),
    (f"advance-queue-consumer {{tmp}}/c {{tmp}}/q {MOVE} 1", ""),
    (f"advance-consumer {{tmp}}/c {{tmp}}/q {MOVE} 2", "fails: offset"),
    ("select-rows '[offset] from [{tmp}/c]' --format json", '{"offset":1}'),
    (f"pull-consumer {{tmp}}/c {{tmp}}/q {AT_1}", ROW),
    ("trim-rows {tmp}/q 0 1", ""),
    ("unregister-queue-consumer {tmp}/q {tmp}/c", ""),
    ("list //", 'fails: cannot normally end with "/"'),
    ("explain-query '* from [{tmp}/c]' --format json", "fails: pipelines do not need it"),
    ("get-job-stderr 1-2-3-4 1-2-3-4", "fails: there is no scheduler"),
    ("chyt execute --alias *a 'select 1'", "fails: ClickHouse (CHYT) is not supported"),
]
"""What follows `yt`, in order, and a part of what it prints, nothing for nothing."""


def test_command_line_works(cluster, tmp):
    """Every command prints what it prints on a real cluster, and fails where it fails there."""
    for line, prints in LINES:
        command = shlex.split(line.format(tmp=tmp))
        code, said = run_yt(cluster.proxy_urls[0], command, '{"v":"a"}\n{"v":"b"}\n')
        fails = prints.startswith("fails: ")
        assert bool(code) == fails, f"{command}: {said}"
        assert prints.removeprefix("fails: ") in said, f"{command}: {said}"
        assert bool(said) == bool(prints), f"{command}: {said}"


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
