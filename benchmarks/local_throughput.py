"""Rows per second through the embedded cluster, beside what the client alone can encode and decode.

`python -m benchmarks.local_throughput` sends and reads the same rows in every format in one run, and
compares the cluster with the client library. Encoded bodies are prepared before the clock runs, so what
is measured holds HTTP and the cluster, and no encoding by the client. Two ratios are printed, both above
1 where the cluster is the faster one: of rows per second, and of processor time per row, which a busy
machine spoils less.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from yt import yson
from yt.wrapper import JsonFormat, YsonFormat

from benchmarks.arguments import positive
from benchmarks.clients import UNCOMPRESSED
from benchmarks.processes import cpu_seconds
from yt_exactly_once.local import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    Row = dict[str, Any]
    Speed = dict[str, float]

_ROOT = "//home/throughput"
_COLUMNS = (
    ("id", "int64"),
    ("name", "string"),
    ("amount", "double"),
    ("flag", "boolean"),
    ("count", "uint64"),
)
_SYSTEM = (("$timestamp", "uint64"), ("$cumulative_data_weight", "int64"))
_ARROW = {
    "int64": pa.int64(),
    "string": pa.string(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "uint64": pa.uint64(),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.local_throughput", description=__doc__)
    parser.add_argument("--rows", type=positive, default=20_000, help="rows per request")
    parser.add_argument("--repetitions", type=positive, default=7, help="of which the best counts")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    options = parser.parse_args(arguments)
    report = measure(options.rows, options.repetitions)
    for line in table(report):
        print(line)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def measure(count: int, repetitions: int) -> dict[str, Any]:
    """Return speeds of every way in and out, with the client's own beside them."""
    rows = [
        {
            "id": number,
            "name": f"name of row {number}",
            "amount": number / 7,
            "flag": number % 3 == 0,
            "count": yson.YsonUint64(number),
        }
        for number in range(count)
    ]
    with LocalCluster() as cluster:
        client = cluster.client(proxy=UNCOMPRESSED)
        _create(client)
        pid = cluster.proxy_pids[0]

        def here(action: Callable[[], Any]) -> Speed:
            return _speed(action, count, repetitions, time.process_time)

        def there(action: Callable[[], Any]) -> Speed:
            return _speed(action, count, repetitions, lambda: cpu_seconds([pid]))

        writes: dict[str, dict[str, Speed]] = {}
        for name, encode in _encoders().items():
            body = encode(rows)
            form = _format(name)
            writes[name] = {"client": here(lambda encode=encode: encode(rows))}
            for kind in ("ordered", "sorted"):
                path = f"{_ROOT}/{kind}"
                writes[name][kind] = there(
                    lambda path=path, body=body, form=form: client.insert_rows(
                        path, [body], raw=True, format=form
                    )
                )
        writes["floor"] = _floor(rows, here)
        reads: dict[str, dict[str, Speed]] = {}
        for name in ("yson", "json"):
            form = _format(name)
            pulled = _pull(client, count, form)
            keys = _dump(form, [{"id": row["id"]} for row in rows])
            reads[name] = {
                "client": here(lambda form=form, body=pulled: _decode(form, body)),
                "pull": there(lambda form=form: _pull(client, count, form)),
                "select": there(lambda form=form: _select(client, form)),
                "lookup": there(lambda form=form, keys=keys: _lookup(client, keys, form)),
            }
        peak = _peak_megabytes(pid)
    return {
        "rows_per_request": count,
        "writes": writes,
        "reads": reads,
        "proxy_peak_mb": peak,
        "client_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def table(report: dict[str, Any]) -> list[str]:
    """Return the report as lines of text; a ratio above 1 means faster than the client."""
    lines = ["                   rows/s   ratio   cpu us/row   ratio"]
    for group in ("writes", "reads"):
        for form, speeds in report[group].items():
            base = speeds.get("client")
            for what, speed in speeds.items():
                rate, cost = speed["rows_per_second"], speed["cpu_us_per_row"]
                line = f"{form:6} {what:8} {rate:9,.0f}"
                if base is None or what == "client":
                    line += f"         {cost:12.2f}"
                else:
                    faster = rate / base["rows_per_second"]
                    cheaper = base["cpu_us_per_row"] / cost
                    line += f"{faster:8.2f} {cost:12.2f}{cheaper:8.2f}"
                lines.append(line)
    return [*lines, f"proxy peak {report['proxy_peak_mb']} MB"]


def _speed(
    action: Callable[[], Any], count: int, repetitions: int, clock: Callable[[], float]
) -> Speed:
    """Return the best rate, and the mean processor time by a clock of who does the work."""
    action()
    begun = clock()
    best = min(_timed(action) for _ in range(repetitions))
    spent = clock() - begun
    return {"rows_per_second": count / best, "cpu_us_per_row": spent / repetitions / count * 1e6}


def _timed(action: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def _create(client: Any) -> None:
    columns = [{"name": name, "type": kind} for name, kind in _COLUMNS]
    system = [{"name": name, "type": kind} for name, kind in _SYSTEM]
    keyed = yson.YsonList([{**columns[0], "sort_order": "ascending"}, *columns[1:]])
    keyed.attributes["unique_keys"] = True
    for name, schema in (("ordered", [*columns, *system]), ("sorted", keyed)):
        path = f"{_ROOT}/{name}"
        attributes = {"dynamic": True, "schema": schema}
        client.create("table", path, recursive=True, attributes=attributes)
        client.mount_table(path, sync=True)


def _encoders() -> dict[str, Callable[[list[Row]], bytes]]:
    return {
        "yson": lambda rows: b"".join(_dump(YsonFormat(), rows)),
        "json": lambda rows: b"".join(_dump(JsonFormat(), rows)),
        "arrow": _dump_arrow,
    }


def _dump(form: Any, rows: list[Row]) -> list[bytes]:
    stream = io.BytesIO()
    form.dump_rows(rows, stream)
    return [stream.getvalue()]


def _dump_arrow(rows: list[Row]) -> bytes:
    """Encode rows as a client does that has them as Python values."""
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in _COLUMNS])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema))
    return sink.getvalue()


def _format(name: str) -> Any:
    if name == "arrow":
        from yt.wrapper.format import ArrowFormat  # noqa: PLC0415 - absent in older clients

        return ArrowFormat(raw=True)
    return YsonFormat() if name == "yson" else JsonFormat()


def _decode(form: Any, body: bytes) -> list[Any]:
    return list(form.load_rows(io.BytesIO(body)))


def _pull(client: Any, count: int, form: Any) -> bytes:
    found: bytes = client.pull_queue(
        f"{_ROOT}/ordered",
        0,
        0,
        max_row_count=count,
        max_data_weight=1 << 30,
        format=form,
        raw=True,
    ).read()
    return found


def _select(client: Any, form: Any) -> bytes:
    found: bytes = client.select_rows(f"* from [{_ROOT}/sorted]", format=form, raw=True).read()
    return found


def _lookup(client: Any, keys: list[bytes], form: Any) -> bytes:
    found: bytes = client.lookup_rows(f"{_ROOT}/sorted", keys, format=form, raw=True).read()
    return found


def _floor(rows: list[Row], here: Callable[[Callable[[], Any]], Speed]) -> dict[str, Speed]:
    """Return how fast SQLite itself takes such rows, ready as tuples, one commit per request."""
    stored = [(0, row["name"].encode(), row["amount"], 0, row["count"], 0, 0) for row in rows]
    names = ", ".join(f"c{number}" for number in range(7))
    with tempfile.TemporaryDirectory(prefix="floor-") as folder:
        connection = sqlite3.connect(Path(folder) / "floor.sqlite3", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"CREATE TABLE t (k INTEGER PRIMARY KEY, {names})")

        def insert() -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(f"INSERT INTO t ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)", stored)
            connection.execute("COMMIT")

        speed = here(insert)
        connection.close()
    return {"sqlite": speed}


def _peak_megabytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) // 1024
    raise LookupError(f"process {pid} has no VmHWM")


if __name__ == "__main__":
    sys.exit(main())
