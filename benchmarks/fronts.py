"""What HTTP and RPC cost: the same rows through both fronts of one embedded cluster, in turns.

`python -m benchmarks.fronts` inserts, looks up and pulls rows. Bodies are encoded before, and answers are
not decoded, so what is measured is the client library, the protocol and the cluster. CPU of the client
and of the cluster come apart. Beside it: how fast rowsets of RPC are encoded and decoded.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yt.wrapper import YsonFormat
from yt.wrapper.format import ArrowFormat

from benchmarks.arguments import positive
from benchmarks.clients import UNCOMPRESSED
from benchmarks.modes.machine import stamp
from benchmarks.modes.results import Spread
from benchmarks.modes.work import NARROW
from benchmarks.parts.rows import ROWS, Sample
from benchmarks.processes import cpu_seconds
from benchmarks.spyt.environments import DRIVER, has_rpc_driver
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.local.rpc.rows import rowset_writer, rowsets
from yt_exactly_once.local.tables.schema import parse_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_HOME = "//home/fronts"
_LOOKED_UP = 10_000
_PULLED = 10_000
_SMALL = 50
"""Requests of one row in a repetition: one alone is shorter than a tick of the kernel's clock."""

_FORMATS = {WireFormat.ARROW: ArrowFormat(raw=True), WireFormat.YSON: YsonFormat(format="binary")}


@dataclass(frozen=True)
class Measured:
    """One piece of work over one protocol.

    Attributes:
        work: what it does.
        front: `HTTP` or `RPC`.
        rows: of one repetition.
        seconds: of each repetition.
        client: CPU seconds of the client in all repetitions.
        cluster: CPU seconds of the cluster in all repetitions.
    """

    work: str
    front: str
    rows: int
    seconds: tuple[float, ...]
    client: float
    cluster: float

    def per_row(self, spent: float) -> float:
        """Return CPU microseconds per row."""
        return spent / len(self.seconds) / self.rows * 1e6


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fronts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repetitions", type=positive, default=15, help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    options = parser.parse_args(arguments)
    if not has_rpc_driver():
        print(f"Nothing to compare: {DRIVER} is not installed", file=sys.stderr)
        return 2
    machine = stamp()
    sample = Sample.of(NARROW)
    found = [*_through_fronts(sample, options.repetitions), *_rowsets(sample, options.repetitions)]
    for line in table(found, machine):
        print(line)
    if options.json is not None:
        kept = {"stamp": machine, "measured": [asdict(one) for one in found]}
        options.json.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


def table(found: Sequence[Measured], machine: dict[str, str]) -> Iterator[str]:
    """Yield the numbers and the rig, as Markdown."""
    yield "| work | over | rows/s, median (quartiles) | CPU of client, µs/row | CPU of cluster, µs/row |"
    yield "|---|---|---|---|---|"
    for one in found:
        rate = Spread.of([one.rows / seconds for seconds in one.seconds])
        cells = f"{rate.middle:,.0f} ({rate.low:,.0f} to {rate.high:,.0f})"
        client = f"{one.per_row(one.client):.2f}" if one.client else ""
        cluster = f"{one.per_row(one.cluster):.2f}" if one.cluster else ""
        yield f"| {one.work} | {one.front} | {cells} | {client} | {cluster} |"
    yield ""
    yield (
        f"{machine['time'][:10]}: {machine['processor']}, {machine['cores']} cores, {machine['memory']},"
        f" {machine['system']}, Python {machine['python']}, ytsaurus-client"
        f" {machine['ytsaurus-client']}; load average {os.getloadavg()[0]:.1f};"
        f" {len(found[0].seconds)} repetitions."
    )


def _through_fronts(sample: Sample, repetitions: int) -> Iterator[Measured]:
    with LocalCluster() as cluster:
        clients = {
            "HTTP": cluster.client(proxy=UNCOMPRESSED),
            "RPC": cluster.client(backend="rpc"),
        }
        _prepare(clients["HTTP"], sample)
        for name, (rows, work) in _works(sample).items():
            works = {front: partial(work, client) for front, client in clients.items()}
            yield from _in_turn(name, rows, works, repetitions, cluster.proxy_pids)


def _prepare(client: Any, sample: Sample) -> None:
    for name, keys in (("ordered", ()), ("sorted", ("id",))):
        path = f"{_HOME}/{name}"
        attributes = {"dynamic": True, "schema": sample.shape.columns(keys)}
        client.create("table", path, recursive=True, attributes=attributes)
        client.mount_table(path, sync=True)
    _insert(client, "sorted", sample.payload(WireFormat.YSON, None), WireFormat.YSON)


def _works(sample: Sample) -> dict[str, tuple[int, Callable[[Any], object]]]:
    """Return what is measured, by name: how many rows, and a function of the client."""
    inserts = {
        wire: partial(_insert, name="ordered", payload=sample.payload(wire), wire=wire)
        for wire in _FORMATS
    }
    one = b"{id=1;key=1;amount=1.;count=1;name=x};"
    keys = b"".join(b"{id=%d};" % (number * 3) for number in range(_LOOKED_UP))

    def small(client: Any) -> None:
        for _ in range(_SMALL):
            _insert(client, "ordered", one, WireFormat.YSON)

    return {
        **{f"insert as {wire}": (ROWS, insert) for wire, insert in inserts.items()},
        "insert, a row per request": (_SMALL, small),
        "look-up": (_LOOKED_UP, partial(_look_up, keys=keys)),
        "pull": (_PULLED, _pull),
    }


def _insert(client: Any, name: str, payload: bytes, wire: WireFormat) -> None:
    client.insert_rows(f"{_HOME}/{name}", BytesIO(payload), format=_FORMATS[wire], raw=True)


def _look_up(client: Any, keys: bytes) -> None:
    form = _FORMATS[WireFormat.YSON]
    client.lookup_rows(f"{_HOME}/sorted", [keys], format=form, raw=True).read()


def _pull(client: Any) -> None:
    form = _FORMATS[WireFormat.YSON]
    limits = {"max_row_count": _PULLED, "max_data_weight": 1 << 24}
    client.pull_queue(f"{_HOME}/ordered", 0, 0, format=form, raw=True, **limits).read()


def _rowsets(sample: Sample, repetitions: int) -> Iterator[Measured]:
    """Encode and decode the rows as the proxy does it, on one core."""
    schema = parse_schema(sample.shape.columns())
    names = list(sample.shape.types)
    data = rowset_writer.encode(sample.batch.to_pylist(), schema.columns)
    rows = list(rowsets.decode(data, names).rows)  # as the store has them, with texts as bytes
    works: dict[str, Callable[[], object]] = {
        "encode a rowset": lambda: rowset_writer.encode(rows, schema.columns),
        "decode a rowset": lambda: rowsets.decode(data, names),
    }
    for name, work in works.items():
        yield from _in_turn(name, ROWS, {"no network": work}, repetitions, [])


def _in_turn(
    name: str,
    rows: int,
    works: dict[str, Callable[[], object]],
    repetitions: int,
    pids: Sequence[int],
) -> Iterator[Measured]:
    """Repeat the work of both fronts, one of each at a time, so that drift hits both."""
    for work in works.values():
        work()  # what is done only once does not count
    seconds: dict[str, list[float]] = {front: [] for front in works}
    spent = {front: [0.0, 0.0] for front in works}
    for number in range(repetitions):
        for front in sorted(works, reverse=bool(number % 2)):
            client, cluster, began = time.process_time(), cpu_seconds(pids), time.perf_counter()
            works[front]()
            seconds[front].append(time.perf_counter() - began)
            spent[front][0] += time.process_time() - client
            spent[front][1] += cpu_seconds(pids) - cluster
    for front in works:
        yield Measured(name, front, rows, tuple(seconds[front]), *spent[front])


if __name__ == "__main__":
    sys.exit(main())
