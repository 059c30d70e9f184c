"""The stock `yt` command line against the cluster: every registered command, as users type it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from yt_exactly_once.local import commands  # noqa: F401 - fills the registry
from yt_exactly_once.local.commands.registry import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable

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
        line: what follows `yt --proxy ...`. `{tmp}` is the directory of the test, other names in
            braces are what earlier calls kept; the output is compared with the same names in it.
        prints: the output, stripped, or a check of it.
        given: standard input.
        keep: name under which later calls refer to the first id in the output.
        fails: part of the error, when the command must fail.
    """

    line: list[str]
    prints: str | Callable[[str], bool] = ""
    given: str = ""
    keep: str = ""
    fails: str = ""


def yt(*words: Any, **rest: Any) -> Call:
    return Call([str(word) for word in words], **rest)


class Terminal:
    """A shell with the `yt` program, pointed at the cluster."""

    def __init__(self, proxy: str, home: Path) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        log = home / "requests.log"
        log.touch()
        self._start = ["--proxy", proxy]
        self._log = log.open()
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
                "YT_LOG_LEVEL": "DEBUG",
                "YT_LOG_PATH": str(log),
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

    def sent(self) -> set[str]:
        """Return the commands that went to the cluster since the last question."""
        return set(re.findall(r"request \S+/api/v4/(\w+)", self._log.read()))

    def close(self) -> None:
        self._log.close()
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
JSON = ["--format", "json"]
SORTED = "{name=k;type=int64;sort_order=ascending};{name=v;type=string}"
TABLE = "{dynamic=%true;schema=[" + SORTED + "]}"
QUEUE = "{dynamic=%true;schema=[{name=v;type=string}]}"
FIRST = ["--partition-index", 0]
SESSION = ["--producer-path", "{tmp}/p", "--queue-path", "{tmp}/q", "--session-id", "s"]

NODES = [
    yt("create", "map_node", "{tmp}/a", prints=object_id),
    yt("create", "map_node", "{tmp}/a", fails="already exists"),
    yt("create", "map_node", "{tmp}/a/deep/er", "-r", "--attributes", "{x=1}", prints=object_id),
    yt("exists", "{tmp}/a", prints="true"),
    yt("exists", "{tmp}/none", prints="false"),
    yt("set", "{tmp}/a/number", "5"),
    yt("set", "{tmp}/a/tree", "{x=[1;%true;u]}", "-f"),
    yt("set", "{tmp}/a/read", given="[1;2]"),
    yt("get", "{tmp}/a/number", prints="5"),
    yt("get", "{tmp}/a/tree", *JSON, prints='{"x":[1,true,"u"]}'),
    yt("get", "{tmp}/a/none", fails="Error resolving path"),
    yt("set-attribute", "{tmp}/a", "color", '"red"'),
    yt("get", "{tmp}/a/@color", prints='"red"'),
    yt("get", "{tmp}/a/deep/er/@x", prints="1"),
    yt("remove-attribute", "{tmp}/a", "color"),
    yt("exists", "{tmp}/a/@color", prints="false"),
    yt("execute", "multiset_attributes", '{path="{tmp}/a/@"}', given='{"p":1,"q":2}', prints="{}"),
    yt("get", "{tmp}/a/@q", prints="2"),
    yt("list", "{tmp}/a", prints="deep\nnumber\nread\ntree"),
    yt("list", "{tmp}/a", "-l", prints=has("map_node", "int64_node", "tmp")),
    yt("copy", "{tmp}/a", "{tmp}/b"),
    yt("move", "{tmp}/b", "{tmp}/c"),
    yt("link", "{tmp}/c", "{tmp}/l"),
    yt("get", "{tmp}/l/number", prints="5"),
    yt("find", "{tmp}", "--name", "number", prints="{tmp}/a/number\n{tmp}/c/number"),
    yt("remove", "{tmp}/c", fails="non-empty"),
    yt("remove", "{tmp}/c", "-r"),
    yt("exists", "{tmp}/c", prints="false"),
]
SERVICE = [
    yt("check-permission", "root", "read", "{tmp}", *JSON, prints=has('"action":"allow"')),
    yt("execute-batch", '{command=exists;parameters={path="{tmp}"}}', prints=has("output", "true")),
    yt("generate-timestamp", prints=str.isdigit),
    yt("get-features", prints=has("primitive_types")),
    yt("whoami", prints=has("root")),
    yt("execute", "get_version", "{output_format=json}", prints=has('"version"')),
    yt("execute", "check_cluster_liveness", "{output_format=json}", prints="{}"),
    yt("execute", "discover_proxies", "{type=http;output_format=json}", prints=has("127.0.0.1")),
    yt(
        "execute", "parse_ypath", '{path="{tmp}/t[#1]";output_format=json}', prints=has("row_index")
    ),
    yt("execute", "start_operation", "{}", fails="not supported by cluster"),
]
FILES = [
    yt("write-file", "{tmp}/f", "--compute-md5", given="text of a file"),
    yt("read-file", "{tmp}/f", prints="text of a file"),
    yt("download", "{tmp}/f", prints="text of a file"),
    yt("upload", "{tmp}/g", given=", continued"),
    yt("create", "file", "{tmp}/both", prints=object_id),
    yt("concatenate", "--src", "{tmp}/f", "--src", "{tmp}/g", "--dst", "{tmp}/both"),
    yt("read-file", "{tmp}/both", prints="text of a file, continued"),
    yt("get", "{tmp}/f/@md5", prints='"37e1d80384a387e1754faf9b5e462fad"'),
]
STATIC_TABLES = [
    yt("write-table", "{tmp}/t", *JSON, given='{"a":1}\n{"a":2}\n'),
    yt("write-table", "<append=%true>{tmp}/t", *JSON, given='{"a":3}\n'),
    yt("read-table", "{tmp}/t", *JSON, prints=rows({"a": 1}, {"a": 2}, {"a": 3})),
    yt("read-table", "{tmp}/t[#1:#2]", "--format", "dsv", prints="a=2"),
    yt("get", "{tmp}/t/@row_count", prints="3"),
    yt("write", "{tmp}/u", "--format", "yson", given="{a=9};"),
    yt("create", "table", "{tmp}/both", prints=object_id),
    yt("concatenate", "--src", "{tmp}/t", "--src", "{tmp}/u", "--dst", "{tmp}/both"),
    yt("read", "{tmp}/both", "--format", "dsv", prints="a=1\na=2\na=3\na=9"),
    yt("create-temp-table", "--path", "{tmp}", prints=has("{tmp}/")),
]
DYNAMIC_TABLES = [
    yt("create", "table", "{tmp}/t", "--attributes", TABLE, prints=object_id),
    yt("reshard-table", "{tmp}/t", "[]", "[5]", "--sync"),
    yt("mount-table", "{tmp}/t", "--sync"),
    yt("get", "{tmp}/t/@tablet_count", prints="2"),
    yt(
        "execute",
        "get_table_pivot_keys",
        '{path="{tmp}/t";output_format=json}',
        prints='[{},{"k":5}]',
    ),
    yt("insert-rows", "{tmp}/t", *JSON, given='{"k":1,"v":"a"}\n{"k":7,"v":"b"}\n'),
    yt("insert-rows", "{tmp}/t", *JSON, given='{"k":1,"x":"a"}', fails='column "x"'),
    yt("lookup-rows", "{tmp}/t", *JSON, given='{"k":7}', prints=rows({"k": 7, "v": "b"})),
    yt("select-rows", "v from [{tmp}/t] where k < 5", *JSON, prints=rows({"v": "a"})),
    yt("select-rows", "nonsense", *JSON, fails="Error"),
    yt("delete-rows", "{tmp}/t", *JSON, given='{"k":1}'),
    yt("select-rows", "* from [{tmp}/t]", *JSON, prints=rows({"k": 7, "v": "b"})),
    yt("freeze-table", "{tmp}/t", "--sync"),
    yt("insert-rows", "{tmp}/t", *JSON, given='{"k":1}', fails="mounted"),
    yt("unfreeze-table", "{tmp}/t", "--sync"),
    yt("remount-table", "{tmp}/t"),
    yt("unmount-table", "{tmp}/t", "--sync"),
    yt(
        "alter-table",
        "{tmp}/t",
        "--schema",
        "<unique_keys=%true>[" + SORTED + ";{name=w;type=int64}]",
    ),
    yt("get", "{tmp}/t/@schema/2/name", prints='"w"'),
    yt("read-table", "{tmp}/t", *JSON, prints=rows({"k": 7, "v": "b", "w": None})),
    yt("get-tablet-errors", "{tmp}/t", *JSON, prints=has('"tablet_errors":')),
]
QUEUES = [
    yt("create", "table", "{tmp}/q", "--attributes", QUEUE, prints=object_id),
    yt("mount-table", "{tmp}/q", "--sync"),
    yt("insert-rows", "{tmp}/q", *JSON, given='{"v":"a"}\n{"v":"b"}\n'),
    yt(
        "get-tablet-infos",
        *("{tmp}/q", "--tablet-indexes", "0", *JSON),
        prints=has('"total_row_count":2'),
    ),
    yt(
        "pull-queue",
        *("{tmp}/q", "--offset", 1, *FIRST, *JSON),
        prints=rows({"$$tablet_index": 0, "$$row_index": 1, "v": "b"}),
    ),
    yt("create", "queue_consumer", "{tmp}/c", prints=object_id),
    yt(
        "pull-queue-consumer",
        *("{tmp}/c", "{tmp}/q", "--offset", 0, *FIRST, *JSON),
        fails="is not registered",
    ),
    yt("register-queue-consumer", "{tmp}/q", "{tmp}/c", "--vital", "--partitions", 0),
    yt(
        "list-queue-consumer-registrations",
        *("--queue-path", "{tmp}/q", *JSON),
        prints=has("{tmp}/c", '"vital":true'),
    ),
    yt(
        "advance-queue-consumer",
        *("{tmp}/c", "{tmp}/q", *FIRST, "--old-offset", 0, "--new-offset", 1),
    ),
    yt(
        "advance-consumer",
        *("{tmp}/c", "{tmp}/q", *FIRST, "--old-offset", 0, "--new-offset", 2),
        fails="offset",
    ),
    yt("select-rows", "[offset] from [{tmp}/c]", *JSON, prints=rows({"offset": 1})),
    yt(
        "pull-consumer",
        *("{tmp}/c", "{tmp}/q", "--offset", 1, *FIRST, *JSON),
        prints=rows({"$$tablet_index": 0, "$$row_index": 1, "v": "b"}),
    ),
    yt("trim-rows", "{tmp}/q", 0, 1),
    yt("unregister-queue-consumer", "{tmp}/q", "{tmp}/c"),
]
PRODUCERS = [
    yt("create", "table", "{tmp}/q", "--attributes", QUEUE, prints=object_id),
    yt("mount-table", "{tmp}/q", "--sync"),
    yt("create", "queue_producer", "{tmp}/p", prints=object_id),
    yt("create-queue-producer-session", *SESSION, *JSON, prints=has('"epoch":0')),
    yt(
        "push-queue-producer",
        *("{tmp}/p", "{tmp}/q", "--session-id", "s", "--epoch", 0),
        *("--input-format", "json", "--output-format", "json"),
        given='{"v":"c","$sequence_number":4}',
        prints=has('"last_sequence_number":4'),
    ),
    yt("remove-queue-producer-session", *SESSION),
    yt("select-rows", "v from [{tmp}/q]", *JSON, prints=rows({"v": "c"})),
]
TRANSACTIONS = [
    yt("set", "{tmp}/locked", 0),
    yt("start-tx", "--timeout", 60_000, keep="first", prints=object_id),
    yt("--tx", "{first}", "set", "{tmp}/x", 1),
    yt("exists", "{tmp}/x", prints="false"),
    yt("--tx", "{first}", "lock", "{tmp}/locked", prints=has("lock_id")),
    yt("set", "{tmp}/locked", 1, fails="lock"),
    yt("--tx", "{first}", "unlock", "{tmp}/locked"),
    yt("set", "{tmp}/locked", 1),
    yt("ping-tx", "{first}"),
    yt("set", "{tmp}/x", 2, fails="lock"),
    yt("commit-tx", "{first}"),
    yt("get", "{tmp}/x", prints="1"),
    yt("start-tx", "--timeout", 60_000, keep="second", prints=object_id),
    yt("--tx", "{second}", "remove", "{tmp}/x"),
    yt("abort-tx", "{second}"),
    yt("get", "{tmp}/x", prints="1"),
    yt("commit-tx", "{second}", fails="No such transaction"),
]
TABLET_TRANSACTIONS = [
    yt("create", "table", "{tmp}/t", "--attributes", TABLE, prints=object_id),
    yt("mount-table", "{tmp}/t", "--sync"),
    yt(
        "execute",
        *("start_transaction", "{type=tablet;sticky=%true;timeout=60000;output_format=json}"),
        keep="tx",
        prints=has("transaction_id"),
    ),
    yt(
        "execute",
        *("lock_rows", '{transaction_id="{tx}";path="{tmp}/t";input_format=json}'),
        given='{"k":1}',
        prints="{}",
    ),
    yt("execute", "abort_transaction", '{transaction_id="{tx}";output_format=json}', prints="{}"),
]
FAMILIES = {
    "nodes": NODES,
    "service": SERVICE,
    "files": FILES,
    "static tables": STATIC_TABLES,
    "dynamic tables": DYNAMIC_TABLES,
    "queues": QUEUES,
    "producers": PRODUCERS,
    "transactions": TRANSACTIONS,
    "tablet transactions": TABLET_TRANSACTIONS,
}
REACHED = {
    "nodes": "create exists set get remove multiset_attributes list copy move link",
    "service": """
        check_permission execute_batch generate_timestamp get_supported_features get_version
        check_cluster_liveness discover_proxies parse_ypath
        """,
    "files": "write_file read_file concatenate",
    "static tables": "write_table read_table",
    "dynamic tables": """
        reshard_table mount_table get_table_pivot_keys insert_rows lookup_rows select_rows
        delete_rows freeze_table unfreeze_table remount_table unmount_table alter_table
        get_tablet_errors
        """,
    "queues": """
        get_tablet_infos pull_queue pull_queue_consumer register_queue_consumer
        list_queue_consumer_registrations advance_queue_consumer advance_consumer pull_consumer
        trim_rows unregister_queue_consumer
        """,
    "producers": "create_queue_producer_session push_queue_producer remove_queue_producer_session",
    "transactions": "start_transaction lock unlock ping_transaction commit_transaction",
    "tablet transactions": "start_transaction lock_rows abort_transaction",
    # The client calls these in tests/local/test_access_control.py and test_partitions.py.
    "no line": """
        add_member remove_member issue_token revoke_token get_current_user partition_tables
        """,
}


@pytest.mark.parametrize(
    "family",
    [
        # Every command starts an interpreter, and what it asks of the cluster has tests of its own.
        pytest.param(family, marks=[pytest.mark.nightly] * (family != "queues"))
        for family in FAMILIES
    ],
)
def test_command_line_works(terminal, tmp, family):
    """Every command prints what it prints on a real cluster, and fails where it fails there."""
    terminal.sent()
    known = {"tmp": tmp}
    for call in FAMILIES[family]:
        line, given = [fill(word, known) for word in call.line], fill(call.given, known)
        code, printed, complaint = terminal.run(line, given)
        seen = f"yt {' '.join(line)}: code {code}\n{printed}\n{complaint}"
        printed = printed.strip().replace(tmp, "{tmp}")
        if call.fails:
            assert code != 0, seen
            assert call.fails in complaint, seen
        else:
            assert code == 0, seen
            fits = call.prints(printed) if callable(call.prints) else call.prints == printed
            assert fits, seen
        if call.keep:
            known[call.keep] = ID.search(printed).group()
    assert set(REACHED[family].split()) <= terminal.sent()


def fill(text: str, known: dict[str, str]) -> str:
    for name, value in known.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def test_command_line_reaches_every_registered_command():
    """None is left out: what has no line of its own goes through `yt execute`."""
    assert {name for names in REACHED.values() for name in names.split()} == set(REGISTRY)


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
