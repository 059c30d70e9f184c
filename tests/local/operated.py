"""A query that an operator breaks and repairs: the real source, sink and checkpoint, without Spark.

`Operated` does what Spark does in a run with `availableNow`: it logs offsets, calls the sink, logs the
commit, and starts at the same place again. Advice is followed as it is printed, see `follow`.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import timedelta
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructType
from yt.cli import yt_binary
from yt.wrapper import YtClient
from yt.wrapper.cli_helpers import print_to_output

import yt_exactly_once
from tests.breaks_page import WRITES
from tests.callers.frames import ROWS_OF_BATCH, Frame, Functions
from tests.contract.tables import SYSTEM, columns
from tests.remedies import COMMAND
from yt_exactly_once import RetryPolicy, Target, TransactionalSink, cli
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.compat.checkpoint import CheckpointFiles
from yt_exactly_once.spark.source.opening import OpenedQueue
from yt_exactly_once.spark.source.packed import PackedQueue
from yt_exactly_once.spark.source.reader import QueueStreamReader

PARTITIONS = 2
QUEUE_SCHEMA = [*columns(value="int64"), *SYSTEM]
TARGET_SCHEMA = [{"name": "value", "type": "int64"}]
_ATTEMPTS = RetryPolicy(attempts=2, first_wait=timedelta(0), max_wait=timedelta(0))
_MOST_STEPS = 6
"""How many pieces of advice an operator follows, one after the other, before they give up."""

_WAYS = re.compile(r" Or\b|,? or |; or ")
_SET = re.compile(r"(?:[Uu]se|query with|set) ([a-z_]+)='?([\w/][\w/-]*)'?")
_MEANT = re.compile(r"Did you mean ([\w-]+)\?(?: Use it instead of (\w+))?")
_ONE_OF = re.compile(r"Use (?:one of: )?(\w[\w-]*)(?:, |$)")
_LEAVE = re.compile(r"[Ll]eave (?:the )?(\w+)(?:='\w+')? out")
_PLACES = re.compile(r"starting_offsets=(\{.*?\})")
_CALL = re.compile(r"yt_exactly_once\.\w+\(.*\)")
_LOSS = re.compile(r"fail_on_data_loss(?: to |=)false")


def printed_by(act: Callable[[], int | None], given: str = "") -> tuple[int, str]:
    """Run a program in this process; return its exit code, and all that it printed, rows as bytes too.

    Args:
        given: on its standard input.
    """
    said = TextIOWrapper(BytesIO(), write_through=True)
    stdin = TextIOWrapper(BytesIO(given.encode()))
    with mock.patch("sys.stdin", stdin), redirect_stdout(said), redirect_stderr(said):
        try:
            code = act()
        except SystemExit as ended:
            code = ended.code  # type: ignore[assignment] - a number
    return int(code or 0), said.buffer.getvalue().decode()  # type: ignore[attr-defined]


def run_yt(proxy: str, arguments: list[str], given: str = "") -> tuple[int, str]:
    """Run the stock program `yt`; it reads YT_PROXY, and finds where to print, when it is imported."""

    def act() -> int | None:
        with mock.patch.object(print_to_output, "__defaults__", (sys.stdout, True)):
            return yt_binary.main()  # type: ignore[no-any-return]

    with mock.patch("sys.argv", ["yt", "--proxy", proxy, *arguments]):
        return printed_by(act, given)


class UndecidedError(Exception):
    """Raised for advice that names nothing which can be done without a decision."""


class Killed(BaseException):
    """Raised where the driver dies."""


@dataclass
class Operated:
    """One query from a queue of two partitions into a target.

    Attributes:
        checkpoint: the folder of the checkpoint; another one is a new query.
        loss: whether the source was told that rows may be lost.
        fed: every row that was ever in the queue.
        options: of the sink, in every run.
        target_options: of the target, in every run.
        source_options: of the source, in every run.
        log: versions in which Spark writes its offsets and its commits.
        gone: rows that no repair can bring back.
        proxy: address that the query was given; that of the cluster unless it is wrong.
        people: what a person does who is asked, by the words that ask them.
        besides: further targets of the function. Each has a sink of its own, which is called first and moves
            no consumer.
        meanwhile: what happens between the plan of the next batch and its run.
        columns: of the DataFrame; each but the first has the same values, or null with `?` behind its name.
        heard: what each tool has said before anything was done, and after how many seconds.
        said: the names of the errors that have stopped the query.
    """

    cluster: LocalCluster
    folder: str
    checkpoint: Path
    mode: str = "transactional"
    loss: bool = False
    fed: list[int] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    target_options: dict[str, Any] = field(default_factory=dict)
    source_options: dict[str, str] = field(default_factory=dict)
    log: tuple[int, int] = 1, 1
    gone: list[int] = field(default_factory=list)
    proxy: str = ""
    token: str = ""
    people: dict[str, Callable[[], object]] = field(default_factory=dict)
    besides: list[str] = field(default_factory=list)
    meanwhile: Callable[[], object] | None = None
    columns: tuple[str, ...] = ("value",)
    heard: dict[str, tuple[str, float]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    followed: list[str] = field(default_factory=list)
    _numbers: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.client: YtClient = self.cluster.client()
        self.proxy = self.cluster.proxy_urls[0]
        self.cluster_name = str(self.client.get("//sys/@cluster_name"))
        self.queue, self.consumer = f"{self.folder}/queue", f"{self.folder}/consumer"
        self.target = f"{self.folder}/target"
        self.ledger = f"{self.target}_ledger"

    def create(self) -> Operated:
        self.create_queue()
        self.create_table(self.target, TARGET_SCHEMA)
        code, said = self.command(f"yt-exactly-once create-consumer {self.consumer} {self.queue}")
        assert code == 0, said
        return self

    def create_queue(self) -> None:
        """Create the queue, or another one at its path."""
        self.create_table(self.queue, QUEUE_SCHEMA, tablet_count=PARTITIONS)

    def link_queue(self, new: str) -> None:
        """Make the path of the queue a link to a new one; the old one is kept under another name."""
        old = f"{self.queue}_old"
        if not self.client.exists(old):
            self.client.unmount_table(self.queue, sync=True)
            self.client.move(self.queue, old)
            self.client.mount_table(old, sync=True)
        self.create_table(f"{self.queue}_{new}", QUEUE_SCHEMA, tablet_count=PARTITIONS)
        self.client.link(f"{self.queue}_{new}", self.queue, force=True)

    def create_table(self, path: str, schema: list[dict[str, Any]], **attributes: Any) -> None:
        """Create and mount a dynamic table."""
        given = {"dynamic": True, "schema": schema, **attributes}
        self.client.create("table", path, recursive=True, attributes=given)
        self.client.mount_table(path, sync=True)

    def feed(self, rows: int) -> None:
        """Append rows to every partition."""
        for partition in range(PARTITIONS):
            values = list(itertools.islice(self._numbers, rows))
            self.fed += values
            self.client.insert_rows(
                self.queue, [{"$tablet_index": partition, "value": value} for value in values]
            )

    @property
    def query_id(self) -> str:
        """The id that Spark gave to the query."""
        return str(json.loads((self.checkpoint / "metadata").read_text())["id"])

    # Spark's part

    def run(self, *, rows: int | None = None, die_after: str = "") -> None:
        """Run the query to the end of the queue.

        Args:
            rows: most rows of a partition in a batch.
            die_after: the driver dies after it has logged `offsets`, after the sinks of targets `besides`,
                or after the `sink` has committed.
        """
        reader = self._reader()
        sink = self._sink()
        reader.prepareForTriggerAvailableNow()
        limit = ReadAllAvailable() if rows is None else ReadMaxRows(rows)
        number, done = self._newest("offsets"), self._newest("commits")
        end = self._offset(number) if number >= 0 else reader.initialOffset()
        if number > done:
            start = self._offset(number - 1) if number > 0 else reader.initialOffset()
            self._execute(reader, sink, number, (start, end), die_after)
        while (planned := reader.latestOffset(end, limit)) != end:
            number += 1
            name = "orders:" if self.log[0] > 1 else ""
            texts = [f"v{self.log[0]}", '{"batchWatermarkMs": 0}', f"{name}{json.dumps(planned)}"]
            self._write(f"offsets/{number}", "\n".join(texts))
            if die_after == "offsets":
                raise Killed
            self._execute(reader, sink, number, (end, planned), die_after)
            end = planned

    def kill(self, die_after: str, **options: Any) -> None:
        """Run the query until the driver dies."""
        with pytest.raises(Killed):
            self.run(die_after=die_after, **options)

    def _execute(
        self,
        reader: Any,
        sink: TransactionalSink,
        number: int,
        ends: tuple[Any, Any],
        die_after: str,
    ) -> None:
        start, end = ends
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            happens()
        tasks = reader.partitions(start, end)
        batches = [list(reader.read(task)) for task in tasks]
        schema = pa.schema([(name.rstrip("?"), pa.int64()) for name in self.columns])
        placed = [
            pa.table(self._values(pa.Table.from_batches(some)["value"]), schema)
            .combine_chunks()
            .to_batches()
            for some in batches
            if some
        ]
        empty = pa.RecordBatch.from_pylist([], schema=schema)
        known = {ROWS_OF_BATCH: "10000"}
        conf = SimpleNamespace(get=known.get, set=known.__setitem__)
        session = SimpleNamespace(conf=conf, _jvm=None)
        frame = Frame(
            SimpleNamespace(in_task=False),  # type: ignore[arg-type]
            schema,
            lambda: [each for some in placed for each in some] or [empty],
            session,
        )
        with ExitStack() as stack:
            for name, module in list(sys.modules.items()):
                if name.startswith("yt_exactly_once.spark.") and hasattr(module, "sf"):
                    stack.enter_context(mock.patch.object(module, "sf", Functions))
            for one in self._sinks_besides:
                one(frame, number)  # type: ignore[arg-type]
            if die_after == "besides":
                raise Killed
            sink(frame, number)  # type: ignore[arg-type]
        if die_after == "sink":
            raise Killed
        self._write(f"commits/{number}", f'v{self.log[1]}\n{{"nextBatchWatermarkMs":0}}')
        reader.commit(end)

    def _values(self, value: Any) -> list[Any]:
        null = pa.nulls(len(value), pa.int64())
        return [null if name.endswith("?") else value for name in self.columns]

    def source_given(self) -> dict[str, str]:
        return {
            **({"consumer_path": self.consumer} if self.consumer else {}),
            "proxy": self.proxy,
            **({"token": self.token} if self.token else {}),
            "fail_on_data_loss": "false" if self.loss else "true",
            **self.source_options,
        }

    def make_sink(self, path: str = "", **more: Any) -> TransactionalSink:
        """Return the sink of a target, as the program of the query makes it at each start."""
        options = {
            "proxy": self.proxy,
            "token": self.token or None,
            "mode": self.mode,
            "retry": _ATTEMPTS,
        }
        target = Target(path or self.target, **self.target_options)
        return TransactionalSink(target, **options | self.options | more)

    def _reader(self) -> QueueStreamReader:
        opened = OpenedQueue.open({"path": self.queue, **self.source_given()})
        return QueueStreamReader(PackedQueue(opened), sleep=lambda _seconds: None)

    def _sink(self) -> TransactionalSink:
        if not (self.checkpoint / "metadata").exists():
            self._write("metadata", json.dumps({"id": str(uuid.uuid4())}))
        with mock.patch("yt_exactly_once.spark.doors.transactional_sink.require_startable"):
            sink = self.make_sink()
            self._sinks_besides = [
                self.make_sink(path, advance_consumer=False) for path in self.besides
            ]
        # Each start unpickles the sinks in a process of its own.
        for one in (sink, *self._sinks_besides):
            one._query = CheckpointFiles(str(self.checkpoint))
        self.sink = sink
        return sink

    def _newest(self, folder: str) -> int:
        place = self.checkpoint / folder
        names = [found.name for found in place.iterdir()] if place.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def _offset(self, number: int) -> Any:
        line = (self.checkpoint / "offsets" / str(number)).read_text().splitlines()[2]
        return json.loads(line.removeprefix("orders:"))

    def _write(self, name: str, text: str) -> None:
        file = self.checkpoint / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    # The operator's part

    def command(self, line: str, **environment: str) -> tuple[int, str]:
        """Run a command as an administrator in a shell; return its exit code, and all that it printed."""
        program, *arguments = shlex.split(line)
        usual = {"YT_PROXY": self.cluster.proxy_urls[0], "YT_TOKEN": "", "COLUMNS": "80"}
        with mock.patch.dict("os.environ", usual | environment):
            if program == "yt-exactly-once" and WRITES:
                # A process of its own, as an operator starts it.
                command = [sys.executable, "-m", "yt_exactly_once", *arguments]
                done = subprocess.run(command, text=True, capture_output=True, check=False)
                return done.returncode, done.stdout + done.stderr
            if program == "yt-exactly-once":
                return printed_by(lambda: cli.main(arguments))
            assert program == "yt"
            return run_yt(self.cluster.proxy_urls[0], arguments)

    def follow(self, advice: str, option: str = "") -> str:
        """Do what a text says, word by word: run its commands, and set its options; return what was said."""
        self.followed.append(advice)
        asked = [words for words in self.people if words in advice]
        for words in asked:
            self.people.pop(words)()
        if asked:
            self.done += [f"a person: {words}" for words in asked]
            return ""
        heard = []
        # Alternatives, the next one if one is refused.
        for way in _WAYS.split(advice.replace("TARGET", self.target)):
            if "if no query has" in way and self._newest("commits") >= 0:
                continue
            commands = list(dict.fromkeys(COMMAND.findall(way)))
            answers = [self.command(command) for command in commands]
            heard += [said for _, said in answers]
            calls = _CALL.findall(way)
            does = [*commands, *calls, *_LOSS.findall(way)]
            if all(code in {0, 1} for code, _ in answers) and (self._set(way, option) or does):
                self.loss |= bool(_LOSS.search(way))
                for call in calls:
                    self._call(call)
                self.done.append(
                    "; ".join(f"`{one}`" for one in [*commands, *calls]) or way.strip()
                )
                if "pass it as consumer_path" in way:
                    self.consumer = shlex.split(commands[0])[2]
                if "a new checkpoint" in way:
                    self.checkpoint = self.checkpoint.with_name(str(uuid.uuid4()))
                return "\n".join(heard)
        raise UndecidedError("\n".join([advice, *heard]))

    def _set(self, way: str, option: str) -> bool:
        """Change the options of the program as a text says; return whether it says anything of them."""
        meant, one_of = _MEANT.search(way), _ONE_OF.search(way)
        if meant is not None:
            given = self._given(option)
            value = given.pop(option)
            given.update({meant[1]: value} if meant[2] else {option: meant[1]})
        elif option and one_of is not None:
            self._given(option)[option] = one_of[1]
        values = {"True": True, "False": False}
        for name, value in _SET.findall(way):
            self._given(name)[name] = values.get(value, value)
        places = _PLACES.search(way)
        if places is not None:
            self.source_options["starting_offsets"] = places[1]
        left = [option if name in {"it", "option"} else name for name in _LEAVE.findall(way)]
        for name in left:
            self._given(name).pop(name)
        return bool(meant or places or (option and one_of) or _SET.search(way) or left)

    def _given(self, name: str) -> dict[str, Any]:
        """Return the options among which one is, or belongs."""
        every = (self.options, self.target_options, self.source_options)
        return next((given for given in every if name in given), self.options)

    def _call(self, code: str) -> None:
        """Run a call of the package as the program of the query would."""
        frame = SimpleNamespace(schema=StructType().add("value", LongType()))
        with mock.patch.dict("os.environ", {"YT_PROXY": self.cluster.proxy_urls[0]}):
            eval(code, {"yt_exactly_once": yt_exactly_once, "df": frame})

    def restart_with_advice(self, **options: Any) -> list[str]:
        """Start the query, and follow the remedy of each error that it stops with; return the errors."""
        stopped: list[str] = []
        for _ in range(_MOST_STEPS):
            begun = time.monotonic()
            try:
                self.run(**options)
            except Exception as error:  # noqa: BLE001 - whatever the operator reads
                stopped.append(str(error))
                tool = getattr(error, "tool", "error")
                self.heard.setdefault(tool, (str(error), time.monotonic() - begun))
                self.said.append(getattr(error, "name", type(error).__name__))
                where = getattr(error, "where", {})
                self.follow(getattr(error, "remedy", ""), where.get("option", ""))
            else:
                return stopped
        raise AssertionError("\n".join(stopped))

    def doctor(self, more: str = "", **environment: str) -> tuple[int, str]:
        """Ask the doctor with every path of the query, and more options."""
        return self.command(
            f"yt-exactly-once doctor --queue {self.queue} --consumer {self.consumer} --target {self.target}"
            f" --max-rows-per-partition 1000 {more}",
            **environment,
        )

    def look(self) -> None:
        """Ask the tools as the user of the query, and note what they say."""
        given = {"YT_PROXY": self.proxy, "YT_TOKEN": self.token, "COLUMNS": "1000"}
        for tool, ask in (
            ("doctor", lambda: self.doctor(f"--checkpoint {self.checkpoint}", **given)),
            (
                "status",
                lambda: self.command(f"yt-exactly-once status {self.folder} --check", **given),
            ),
        ):
            begun = time.monotonic()
            code, said = ask()
            self.heard[tool] = said if code else "", time.monotonic() - begun

    def repairs(self, more: str = "", levels: tuple[str, ...] = ("problem ",)) -> list[str]:
        """Return the repairs that the doctor prints for problems, or for what is as bad as said."""
        lines = self.doctor(more)[1].splitlines()
        found, is_problem = [], False
        for line in lines:
            if not line.startswith(" "):
                is_problem = line.startswith(levels)
            elif is_problem and line.strip().startswith("repair: "):
                found.append(line.strip().removeprefix("repair: "))
        return found

    def written(self) -> Counter[int]:
        """Return the rows of the target, each with how often it is there."""
        return Counter(
            row["value"] for row in self.client.select_rows(f"value from [{self.target}]")
        )

    def assert_exact(self, expected: list[int] | None = None) -> None:
        """Compare every row: each that was ever in the queue is in the target, once."""
        found, wanted = self.written(), Counter(self.fed if expected is None else expected)
        assert (found - wanted, wanted - found) == (Counter(), Counter())
