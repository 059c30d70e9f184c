"""Rows per second through the embedded cluster, and what a row costs it, beside an earlier version.

`python -m benchmarks.cluster --beside ../before` starts two clusters, one of this checkout and one of the
other, and gives both the same requests in turns. Bodies are ready before the clock runs. Rates are per
second of the proxy's processor time, which a busy machine spoils less than the time on the clock.
`--queue ROWS` sends and reads that many rows instead, and tells how memory, speed and the file grow.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pyarrow as pa
from yt import yson
from yt.wrapper import JsonFormat, YsonFormat, YtClient

from benchmarks.arguments import positive
from benchmarks.clients import UNCOMPRESSED
from benchmarks.modes.work import SHAPES
from benchmarks.parts.rows import ROWS, Sample
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.source.range import ROWS_PER_PULL

_ROOT = "//home/bench"
_ROWS = 100_000
_COMPOSITES = 10_000
_QUEUE, _COMPOSITE, _SORTED, _LONG = (f"{_ROOT}/{name}" for name in ("q", "c", "s", "long"))
_SAMPLED = {shape.name: f"{_ROOT}/{shape.name}" for shape in SHAPES.values()}
_NARROW = (
    ("id", "int64", pa.int64()),
    ("name", "string", pa.string()),
    ("amount", "double", pa.float64()),
    ("flag", "boolean", pa.bool_()),
    ("count", "uint64", pa.uint64()),
)
_LIST = {"type_name": "list", "item": "int64"}
_STRUCT = {
    "type_name": "struct",
    "members": [
        {"name": "a", "type": "int64"},
        {"name": "b", "type": {"type_name": "optional", "item": "string"}},
    ],
}
_SERVE = """
import sys
from yt_exactly_once.local import LocalCluster

with LocalCluster() as cluster:
    print(cluster.proxy_urls[0], cluster.proxy_pids[0], flush=True)
    sys.stdin.read()
"""
_SHARES = 10
_BATCH = 50_000


@dataclass
class Contender:
    """One cluster.

    Attributes:
        name: what the report calls it.
        client: for it.
        pid: of its only proxy.
        seconds: processor time of the proxy per turn, by measure.
        clock: time on the clock per turn, by measure.
    """

    name: str
    client: Any
    pid: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    clock: dict[str, list[float]] = field(default_factory=dict)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, and keep the numbers where `--json` says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--beside", type=Path, help="checkout of an earlier version")
    parser.add_argument("--rounds", type=positive, default=7, help="of each measure, default 7")
    parser.add_argument("--queue", type=positive, help="rows to send through one queue instead")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    options = parser.parse_args(arguments)
    report = (
        _long_queue(options.queue) if options.queue else _compare(options.beside, options.rounds)
    )
    for line in report.pop("lines"):
        print(line)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _compare(beside: Path | None, rounds: int) -> dict[str, Any]:
    with _started("now", None) as now:
        if beside is None:
            return _measure([now], rounds)
        with _started("before", beside.resolve()) as before:
            return _measure([now, before], rounds)


@contextmanager
def _started(name: str, checkout: Path | None) -> Iterator[Contender]:
    """Start a cluster of one proxy, of another checkout if there is one."""
    root = checkout or Path.cwd()
    # Another version starts its proxies in another way.
    with Popen(
        [sys.executable, "-c", _SERVE],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=PIPE,
        stdout=PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url, pid = process.stdout.readline().split()
        client = YtClient(url, config={"proxy": UNCOMPRESSED})
        _create(client)
        yield Contender(name, client, int(pid))
        # The process stops its cluster at the end of its input.


def _create(client: Any) -> None:
    narrow = [{"name": name, "type": kind} for name, kind, _ in _NARROW]
    system = [
        {"name": "$timestamp", "type": "uint64"},
        {"name": "$cumulative_data_weight", "type": "int64"},
    ]
    composite = [{"name": "l", "type_v3": _LIST}, {"name": "t", "type_v3": _STRUCT}]
    keyed = yson.YsonList([{**narrow[0], "sort_order": "ascending"}, *narrow[1:]])
    keyed.attributes["unique_keys"] = True
    schemas: dict[str, Any] = {
        _QUEUE: narrow + system,
        _LONG: narrow + system,
        _COMPOSITE: narrow[:1] + composite,
        _SORTED: keyed,
        **{_SAMPLED[name]: shape.columns() for name, shape in SHAPES.items()},
    }
    for path, schema in schemas.items():
        attributes = {"dynamic": True, "schema": schema}
        client.create("table", path, recursive=True, attributes=attributes)
        client.mount_table(path, sync=True)


def _measure(contenders: list[Contender], rounds: int) -> dict[str, Any]:
    measures = _measures()
    for name, (_, repeat, act) in measures.items():
        for turn in range(rounds + 1):
            for contender in contenders:
                cpu, clock = _processor_seconds(contender.pid), time.perf_counter()
                for _ in range(repeat):
                    act(contender.client)
                # The first turn warms up.
                if turn:
                    spent = _processor_seconds(contender.pid) - cpu
                    contender.seconds.setdefault(name, []).append(spent / repeat)
                    passed = time.perf_counter() - clock
                    contender.clock.setdefault(name, []).append(passed / repeat)
    lines = [f"{'measure':28}" + "".join(f"{c.name + ', rows/s':>18}" for c in contenders)]
    kept = {}
    for name, (count, _, _) in measures.items():
        rates = [count / statistics.median(c.seconds[name]) for c in contenders]
        line = f"{name:28}" + "".join(f"{rate:18,.0f}" for rate in rates)
        if len(rates) > 1:
            line += f"   {rates[0] / rates[1]:8.2f} times"
        lines.append(line)
        kept[name] = {
            c.name: {"rows": count, "cpu_seconds": c.seconds[name], "seconds": c.clock[name]}
            for c in contenders
        }
    return {"lines": lines, "measures": kept}


def _measures() -> dict[str, tuple[int, int, Callable[[Any], Any]]]:
    """Return rows per request, requests per turn and the request, by name."""
    narrow, arrow = _narrow(0, _ROWS), _arrow_format()
    keys = [_dump([{"id": number} for number in range(_ROWS)])]
    composite = pa.table(
        {
            "id": narrow["id"][:_COMPOSITES],
            "l": pa.array([list(range(number % 5)) for number in range(_COMPOSITES)]),
            "t": pa.array([{"a": number, "b": f"b{number}"} for number in range(_COMPOSITES)]),
        }
    )

    def insert(path: str, table: Any) -> Callable[[Any], Any]:
        body = [_stream(table)]
        return lambda client: client.insert_rows(path, body, raw=True, format=arrow)

    def pull(form: Any, path: str = _QUEUE, rows: int = _ROWS) -> Callable[[Any], Any]:
        limits = {"max_row_count": rows, "max_data_weight": 1 << 30}
        return lambda client: client.pull_queue(path, 0, 0, **limits, format=form, raw=True).read()

    # What the sink sends and the source asks for; composite values then travel as YSON.
    sampled: dict[str, tuple[int, int, Callable[[Any], Any]]] = {}
    for name, shape in SHAPES.items():
        path, body = _SAMPLED[name], [bytes(Sample.of(shape).payload(WireFormat.ARROW))]
        sampled[f"insert, {name} of the sink"] = (
            ROWS,
            1,
            lambda client, path=path, body=body: client.insert_rows(
                path, body, raw=True, format=arrow
            ),
        )
        binary = YsonFormat(format="binary")
        sampled[f"pull, {name} of the source"] = (
            ROWS_PER_PULL,
            5,
            pull(binary, path, ROWS_PER_PULL),
        )
    return {
        **sampled,
        "insert, narrow Arrow": (_ROWS, 1, insert(_QUEUE, narrow)),
        "insert, 1 row": (1, 200, insert(_QUEUE, narrow[:1])),
        "insert, 10 rows": (10, 200, insert(_QUEUE, narrow[:10])),
        "insert, composite Arrow": (_COMPOSITES, 1, insert(_COMPOSITE, composite)),
        "pull, YSON": (_ROWS, 1, pull(YsonFormat())),
        "pull, JSON": (_ROWS, 1, pull(JsonFormat())),
        "upsert, sorted Arrow": (_ROWS, 1, insert(_SORTED, narrow)),
        "lookup, YSON": (
            _ROWS,
            1,
            lambda client: client.lookup_rows(_SORTED, keys, format=YsonFormat(), raw=True).read(),
        ),
    }


def _long_queue(total: int) -> dict[str, Any]:
    """Send rows through one queue in tenths: all that a share is sent, it is read and measured."""
    lines = [
        f"{'rows':>12}{'insert rows/s':>16}{'pull rows/s':>14}{'memory, MB':>12}{'disk, MB':>10}"
    ]
    shares = []
    step = max(total // _SHARES // _BATCH, 1) * _BATCH
    limits = {"max_row_count": _BATCH, "max_data_weight": 1 << 30}
    with LocalCluster() as cluster:
        client, pid = cluster.client(proxy=UNCOMPRESSED), cluster.proxy_pids[0]
        _create(client)
        for first in range(0, total, step):
            bodies = [
                [_stream(_narrow(start, _BATCH))] for start in range(first, first + step, _BATCH)
            ]
            begun = _processor_seconds(pid)
            for body in bodies:
                client.insert_rows(_LONG, body, raw=True, format=_arrow_format())
            inserted = _processor_seconds(pid)
            for offset in range(first, first + step, _BATCH):
                client.pull_queue(_LONG, offset, 0, **limits, format=YsonFormat(), raw=True).read()
            pulled = _processor_seconds(pid)
            size = sum(path.stat().st_size for path in cluster.data_dir.glob("store.sqlite3*"))
            share = {
                "rows": first + step,
                "insert": step / (inserted - begun),
                "pull": step / (pulled - inserted),
                "memory_mb": _memory_megabytes(pid),
                "disk_mb": size / 1e6,
            }
            shares.append(share)
            lines.append(
                f"{share['rows']:12,}{share['insert']:16,.0f}{share['pull']:14,.0f}"
                f"{share['memory_mb']:12,.0f}{share['disk_mb']:10,.0f}"
            )
    return {"lines": lines, "shares": shares}


def _narrow(first: int, count: int) -> Any:
    numbers = range(first, first + count)
    columns = {
        "id": list(numbers),
        "name": [f"name of row {number}" for number in numbers],
        "amount": [number / 7 for number in numbers],
        "flag": [number % 3 == 0 for number in numbers],
        "count": list(numbers),
    }
    return pa.table({name: pa.array(columns[name], kind) for name, _, kind in _NARROW})


def _stream(table: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _dump(rows: list[dict[str, Any]]) -> bytes:
    stream = io.BytesIO()
    YsonFormat().dump_rows(rows, stream)
    return stream.getvalue()


def _arrow_format() -> Any:
    from yt.wrapper.format import ArrowFormat  # noqa: PLC0415 - absent in older clients

    return ArrowFormat(raw=True)


def _processor_seconds(pid: int) -> float:
    """Return the processor time of a process, to the nanosecond where the kernel tells it."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _memory_megabytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    raise LookupError(f"process {pid} has no VmRSS")


if __name__ == "__main__":
    sys.exit(main())
