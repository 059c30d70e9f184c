"""Bytes as an attacker makes them who writes to a queue or reaches a proxy, and the cost of reading them."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

if TYPE_CHECKING:
    import random

assert pd.__version__
"""Arrow imports it when it converts the first value, which takes more memory than most payloads."""

FLOOR = 8 << 20
"""Bytes that reading may take of whatever payload: parts of fixed size, and the objects of an interpreter."""

COLUMNS = {
    "i": "int64",
    "u": "uint64",
    "d": "double",
    "b": "boolean",
    "s": "string",
    "t": "utf8",
    "a": "any",
}
"""Names and types of columns that the payloads mention."""


_POOLS: list[Any] = []
"""Those that arrays may belong to, which an error holds."""


@dataclass(frozen=True)
class Cost:
    """What reading took.

    Attributes:
        outcome: name of the error, or nothing.
        peak: most bytes that were taken at a time.
    """

    outcome: str
    error: BaseException | None
    peak: int
    seconds: float


def cost_of(read: Callable[[bytes], Any], payload: bytes) -> Cost:
    """Read a payload, and count the memory of Python, numpy and Arrow."""
    arrow = pa.proxy_memory_pool(pa.system_memory_pool())
    _POOLS.append(arrow)
    former = pa.default_memory_pool()
    pa.set_memory_pool(arrow)
    tracemalloc.start()
    began, error = time.perf_counter(), None
    try:
        read(payload)
    except Exception as raised:  # noqa: BLE001 - the caller judges it
        error = raised
    finally:
        seconds = time.perf_counter() - began
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        pa.set_memory_pool(former)
    most = peak + (arrow.max_memory() or 0)
    return Cost(type(error).__name__ if error else "", error, most, seconds)


def varint(number: int) -> bytes:
    """Write an unsigned number."""
    groups = bytearray()
    while number >> 7:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*groups, number))


def string(value: bytes, length: int | None = None) -> bytes:
    """Write a string, which may lie about its length."""
    return b"\x01" + varint(2 * (len(value) if length is None else length)) + value


def _rows(chance: random.Random, size: int) -> bytes:
    """Rows that are laid out alike, of values that are small most of the time."""
    names = chance.sample(list(COLUMNS), chance.randint(1, len(COLUMNS)))
    if chance.random() < 0.5:
        names = ["$tablet_index", "$row_index", *names]
    narrow = chance.random() < 0.5
    found = bytearray()
    while len(found) < size:
        cells = b"".join(
            string(name.encode()) + b"=" + _value(chance, COLUMNS.get(name, "int64"), narrow) + b";"
            for name in names
        )
        found += b"{" + cells + b"};"
    return bytes(found)


def rows_of_values(chance: random.Random, size: int) -> bytes:
    """Rows of one column, of values that may fit into a composite one."""
    kinds = (
        lambda: b"\x02" + varint(chance.getrandbits(5)),
        lambda: b"#",
        lambda: (
            b"["
            + b"".join(chance.choice(kinds)() + b";" for _ in range(chance.randrange(5)))
            + b"]"
        ),
        lambda: b"[" + b"\x02\x04;" * chance.randrange(9) + b"]",
        lambda: b"[[" + b"\x02\x04;" * chance.randrange(9) + b"];[m1=2];{m3=5;m0=#}]",
        lambda: b"[[" + b"\x02\x04;" * chance.randrange(9) + b"];[1;2;3]]",
        lambda: b"{" + string(b"m1") + b"=[" + b"#;" * chance.randrange(9) + b"]}",
    )
    found = bytearray()
    while len(found) < chance.randint(1, size):
        found += b"{" + string(b"a") + b"=" + chance.choice(kinds)() + b";};"
    return bytes(found)


def _value(chance: random.Random, kind: str, narrow: bool) -> bytes:
    if chance.random() < 0.1:
        return b"#"
    number = varint(chance.getrandbits(7 if narrow else 64))
    text = chance.randbytes(chance.randrange(2 if narrow else 300))
    return {
        "int64": b"\x02" + number,
        "uint64": b"\x06" + number,
        "double": b"\x03" + chance.randbytes(8),
        "boolean": chance.choice((b"\x04", b"\x05")),
        "any": nested(chance, 3),
    }.get(kind, string(text))


def nested(chance: random.Random, depth: int) -> bytes:
    kind = chance.randrange(8 if depth else 4)
    if kind < 4:
        return (b"#", b"\x02\x02", b"\x05", string(b"x" * chance.randrange(5)))[kind]
    items = [nested(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind < 6:
        return b"[" + b"".join(item + b";" for item in items) + b"]"
    return b"{" + b"".join(string(b"k%d" % n) + b"=" + v + b";" for n, v in enumerate(items)) + b"}"


def _key(chance: random.Random) -> bytes:
    return string(chance.choice(list(COLUMNS)).encode()) + b"="


def rows_in_a_cell(key: bytes, marker: bytes, tail: bytes, size: int) -> bytes:
    """Write one string that is full of openings of rows, all of which claim the bytes up to its end.

    Args:
        key: of the only column, with its equals sign.
        marker: what each value begins with, a string included, which reaches to the tail.
        tail: what the values share besides, after enough to make all lengths take three bytes.
        size: bytes of the openings.
    """
    opening = b"};{" + key + marker
    step = len(opening) + 3
    count = max(1, min(size, 900_000) // step)
    filling = bytes(9_000)
    openings = (opening + varint(2 * ((count - 1 - n) * step + len(filling))) for n in range(count))
    cell = b"".join(openings) + filling + tail
    return b"{" + key + string(cell) + b";};"


def _rows_in_a_cell(chance: random.Random, size: int) -> bytes:
    marker = chance.choice((b"\x01", b"\x01", b"[\x01"))
    items = b";" + chance.choice((b"#;", b"\x02\x02;", b"[];")) * (size // 4) + b"]"
    tail = chance.choice((b"", b";};", b"};")) if marker == b"\x01" else items
    return rows_in_a_cell(_key(chance), marker, tail, size)


def _many_small(chance: random.Random, size: int) -> bytes:
    """Whatever takes the fewest bytes, very often."""
    unit = chance.choice(
        (
            b"{};", b"{", b"{{", b"[", b"[];", b"#;", b";", b"<", b"<>#;", b"\x02", b"\x00", b"};{",
            b"{\x01\x02i=#};", b"{\x01\x02i=#;};", b"{\x01\x00=#};", b"{\x01\x02i=\x02\x02};",
            b"{\x01\x02s=\x01\x00};", b"{\x01\x02b=\x05};", b"{a=1};", b"{i=1;s=2};",
            b"{\x01\x02i=\x02\x02;\x01\x02i=\x02\x02;};", b"{\x01\x02u=\x06\x01};",
        )
    )  # fmt: skip
    return unit * (1 + size // len(unit))


def _one_large(chance: random.Random, size: int) -> bytes:
    """One row with a value of very many small parts."""
    unit = chance.choice(
        (b"#;", b"[];", b"{};", b"\x02\x02;", b"\x01\x00;", b"[#;];", b"\x05;", b"<>#;", b"[[];];")
    )
    key = _key(chance)
    rows = chance.choice((1, 1, 2, 40))
    return (b"{" + key + b"[" + unit * (1 + size // len(unit) // rows) + b"];};") * rows


def _deep(chance: random.Random, size: int) -> bytes:
    """Values nested deeply, in one row or in many."""
    rows = chance.choice((1, 1, 40, 200))
    depth = chance.choice((60, 70, 300, 2000, 20_000, size // 2 // rows))
    opening, closing = chance.choice(
        ((b"[", b"]"), (b"{\x01\x02k=", b"}"), (b"<\x01\x02k=", b">#"))
    )
    one = b"{" + _key(chance) + opening * depth + b"#" + closing * depth + b";};"
    return one * chance.choice((1, rows))


def _many_keys(chance: random.Random, size: int) -> bytes:
    """A row of very many columns, or of one column again and again."""
    cells = (
        string((b"k%d" % n) if n % 3 else b"i") + b"=" + chance.choice((b"#;", b"\x02\x02;"))
        for n in range(1 + size // 8)
    )
    return b"{" + b"".join(cells) + b"};"


def _noise(chance: random.Random, size: int) -> bytes:
    """Bytes without a meaning, all of them or the ones of the format."""
    if chance.random() < 0.3:
        return chance.randbytes(size)
    alphabet = b"{}[]<>=;#\x01\x02\x03\x04\x05\x06\x02\x02"
    return bytes(chance.choices(alphabet, k=size))


def _text(chance: random.Random, size: int) -> bytes:
    """YSON as people write it."""
    unit = chance.choice(
        (
            b'{"i"=1;"s"="x"};',
            b"{i=-1u;};",
            b"{d=%nan};",
            b"{d=%inf;};",
            b'{s="\\xff\\"};',
            b"{b=%true};",
        )
    )
    return unit * (1 + size // len(unit))


FAMILIES = (
    _rows, _rows, _rows, _rows_in_a_cell, _rows_in_a_cell, _rows_in_a_cell, _many_small, _one_large,
    _deep, _many_keys, _noise, _text,
)  # fmt: skip


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Put something else where some bytes are."""
    if not data:
        return data
    place, other = chance.randrange(len(data)), chance.randrange(len(data))
    flipped = bytes((data[place] ^ 1 << chance.randrange(8),))
    strange = chance.choice((b"\xff" * 10, b"{", b"}", b";", b"\x01\x7f"))
    copied = data[other : other + chance.randrange(1000)]
    removed, put = chance.choice(
        ((len(data), b""), (1, flipped), (1 + chance.randrange(4), b""), (0, strange), (0, copied))
    )
    return data[:place] + put + data[place + removed :]
