"""Read generated payloads with every reader: `python -m tests.property.hostile_readers --count 10000`.

Payloads are read in forked children, on Linux with glibc. A peak is the high-water mark of resident memory,
above what the child had when the payload was made. So it counts what Python, Arrow, numpy and C++ take. A
payload over the bound is read once more, alone in a fresh child. Time is processor time.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.kinds import listed, optional
from tests.property import hostile_bytes, hostile_formats
from tests.property.hostile_bytes import COLUMNS, FLOOR
from tests.property.hostile_formats import Payload, payloads_of
from yt_exactly_once.codec.rows import decode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of
from yt_exactly_once.errors import EncodingError
from yt_exactly_once.local.cypress import ypath
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import row_formats, structured
from yt_exactly_once.local.formats.structured import Format
from yt_exactly_once.local.http import encodings
from yt_exactly_once.local.ql.text import parser
from yt_exactly_once.local.rpc import message_types
from yt_exactly_once.local.rpc.rows import rowsets
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import parse_schema
from yt_exactly_once.local.tablets import modifications, validation

V3_NAMES = {"boolean": "bool", "any": "yson"}
PLAIN = [
    {"name": name, "type": kind, "type_v3": optional(V3_NAMES.get(kind, kind))}
    for name, kind in COLUMNS.items()
]
LISTS = [{"name": name, "type_v3": optional(listed(optional("int64")))} for name in COLUMNS]
STRUCT = {
    "type_name": "struct",
    "members": [{"name": f"m{n}", "type": optional("int64")} for n in range(12)],
}
STRUCTS = [{"name": name, "type_v3": optional(listed(optional(STRUCT)))} for name in COLUMNS]
ANY = [{"name": name, "type": "any", "type_v3": optional("yson")} for name in COLUMNS]
SCHEMAS = (PLAIN, LISTS, STRUCTS, ANY)
MOST_SECONDS = 5.0
_POPULATE_READ = 22


def decoded(rows: bytes, schema: list[dict[str, Any]]) -> Any:
    """Read rows as the source does."""
    return decode(rows, arrow_schema_of(TableSchema.from_yt(schema), binary_strings=True))


def layout_of(schema: list[dict[str, Any]], *, is_sorted: bool = False) -> TableLayout:
    """Return a table with these columns."""
    given = [dict(column) for column in schema]
    if is_sorted:
        given[0] = {"name": "i", "type": "int64", "sort_order": "ascending"}
    parsed = parse_schema(given)
    return TableLayout("", "//t", parsed, tuple(f"c{n}" for n in range(len(parsed.columns))), ())


def inserted(
    body: bytes, schema: list[dict[str, Any]], *, form: Format, is_sorted: bool = False
) -> Any:
    """Read rows as an insert does, up to what the commit gets."""
    layout = layout_of(schema, is_sorted=is_sorted)
    rows = row_formats.loads(body, form, validation.input_schema(layout))
    return modifications.write_batches(layout, rows)


def _rowset(body: bytes, schema: list[dict[str, Any]]) -> Any:
    layout = layout_of(schema)
    return modifications.write_batches(layout, rowsets.decode(body, list(COLUMNS)).rows)


@dataclass(frozen=True)
class Reader:
    """A reader, who makes its payloads, and what it raises.

    Attributes:
        most: bytes of a payload.
    """

    read: Callable[[bytes, list[dict[str, Any]]], Any]
    payloads: Callable[[int, range, int], Iterator[Payload]]
    most: int = 1 << 21
    typed: type[Exception] = YtError


def _of(families: Any) -> Callable[[int, range, int], Iterator[Payload]]:
    return partial(payloads_of, families)


_YSON = _of(hostile_bytes.FAMILIES)
READERS = {
    "product: rows of a pull": Reader(decoded, _YSON, typed=EncodingError),
    "cluster: YSON": Reader(partial(inserted, form=Format("yson")), _YSON),
    "cluster: YSON, sorted": Reader(partial(inserted, form=Format("yson"), is_sorted=True), _YSON),
    "cluster: JSON": Reader(partial(inserted, form=Format("json")), _of(hostile_formats.JSON)),
    "cluster: Arrow": Reader(
        partial(inserted, form=Format("arrow")), hostile_formats.arrow_payloads
    ),
    "cluster: rowset": Reader(_rowset, _of(hostile_formats.ROWSET)),
    "cluster: compressed body": Reader(
        lambda body, schema: inserted(encodings.decode(body, "gzip"), schema, form=Format("yson")),
        hostile_formats.deflated,
        1 << 19,
    ),
    "cluster: value in YSON": Reader(
        lambda body, _: structured.loads(body, Format("yson"), "a value"),
        _of(hostile_formats.VALUE),
    ),
    "cluster: value in JSON": Reader(
        lambda body, _: structured.loads(body, Format("json"), "a value"), _of(hostile_formats.JSON)
    ),
    "cluster: query": Reader(
        lambda body, _: parser.parse(body.decode("latin-1")), _of(hostile_formats.QUERY)
    ),
    "cluster: path": Reader(
        lambda body, _: ypath.parse(body.decode("latin-1")), _of(hostile_formats.PATH)
    ),
    "cluster: RPC message": Reader(
        lambda body, _: message_types.parse_request("TReqModifyRows", body),
        _of(hostile_formats.MESSAGE),
    ),
}


@dataclass
class Found:
    """What reading some payloads has shown."""

    count: int = 0
    ratio: float = 0.0
    worst: str = ""
    seconds: float = 0.0
    slowest: str = ""
    outcomes: Counter[str] = field(default_factory=Counter)
    violations: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """Take in what others have shown."""
        self.count += other.count
        if other.ratio > self.ratio:
            self.ratio, self.worst = other.ratio, other.worst
        if other.seconds > self.seconds:
            self.seconds, self.slowest = other.seconds, other.slowest
        self.outcomes += other.outcomes
        self.violations += other.violations


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise RuntimeError(name)


def _touch_libraries() -> None:
    """Make all pages of libraries resident, so that the first use of one does not count as a peak."""
    advise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        edges, access, *rest = line.split()
        if access.startswith("r") and rest[-1].startswith("/"):
            begin, end = (int(edge, 16) for edge in edges.split("-"))
            advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _POPULATE_READ)


def read_some(name: str, seed: int, numbers: range, most: int) -> Found:
    """Read payloads in this process."""
    reader = READERS[name]
    found, trim = Found(), ctypes.CDLL(None).malloc_trim
    _touch_libraries()
    payloads = reader.payloads(seed, numbers, most)
    for number, (family, body, length) in zip(numbers, payloads, strict=True):
        schema = SCHEMAS[number % 4]
        error: Exception | None = None
        # Making the payload took memory too.
        trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        held = _memory("VmRSS:")
        began = time.process_time()
        try:
            result = reader.read(body, schema)
            seconds = time.process_time() - began
            del result
        except Exception as raised:  # noqa: BLE001 - it is judged below
            error = raised
            seconds = time.process_time() - began
        peak = max(0, _memory("VmHWM:") - held)
        shown = (
            f"{number}: {family}, schema {number % 4}, {length} bytes, peak {peak}, {seconds:.1f} s"
        )
        ratio = max(0, peak - FLOOR) / max(1, length)
        found.add(Found(1, ratio, shown, seconds, shown, Counter({type(error).__name__: 1})))
        if error is not None and not isinstance(error, reader.typed):
            found.violations.append((number, f"{shown}: {error!r:.200}"))
        elif ratio > 8 or seconds > MOST_SECONDS:
            found.violations.append((number, shown))
    return found


def in_child(name: str, seed: int, numbers: range, most: int) -> Found:
    """Read payloads in a forked child."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(into, "wb") as pipe:
            pickle.dump(read_some(name, seed, numbers, most), pipe)
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if status or not data:
        died = f"{numbers}: the child has died with {status}"
        return Found(len(numbers), violations=[(n, died) for n in numbers])
    found: Found = pickle.loads(data)
    return found


def read_all(
    name: str, seed: int, numbers: range, batch: int = 200, most: int | None = None
) -> Found:
    """Read payloads of at most so many bytes; what is too much is read again alone."""
    reader = READERS[name]
    most = min(most or reader.most, reader.most)
    # The other pools take memory in large blocks.
    pa.set_memory_pool(pa.system_memory_pool())
    # What is imported and made at its first use does not count.
    for _, body, _ in reader.payloads(0, range(100), 1 << 12):
        for schema in SCHEMAS:
            try:
                reader.read(body, schema)
            except reader.typed:
                continue
    whole = Found()
    for start in range(numbers.start, numbers.stop, batch):
        some = in_child(name, seed, range(start, min(start + batch, numbers.stop)), most)
        again = some.violations
        if again or some.ratio > whole.ratio:
            number = int(some.worst.partition(":")[0] or 0)
            some.ratio, some.violations = 0.0, []
            for suspect in sorted({number, *(n for n, _ in again)}):
                alone = in_child(name, seed, range(suspect, suspect + 1), most)
                alone.count, alone.outcomes = 0, Counter()
                some.add(alone)
        whole.add(some)
    return whole


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--most", type=int, help="bytes of a payload, below those of the reader")
    options.add_argument("--reader", action="append", choices=READERS)
    given = options.parse_args()
    bad = 0
    for name in given.reader or READERS:
        numbers = range(given.first, given.first + given.count)
        found = read_all(name, given.seed, numbers, most=given.most)
        sys.stdout.write(
            f"{name}: {found.count} payloads, worst peak over 8 MiB {found.ratio:.1f} times"
            f" ({found.worst}); longest {found.seconds:.1f} s ({found.slowest});"
            f" {len(found.violations)} violations; {dict(found.outcomes)}\n"
        )
        sys.stdout.writelines(f"    {shown}\n" for _, shown in found.violations[:10])
        sys.stdout.flush()
        bad += len(found.violations)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
