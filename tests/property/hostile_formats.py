"""Hostile bytes of the formats that are not YSON: JSON, Arrow, rowsets, queries and paths."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Iterator

import pyarrow as pa

from tests.arrow_streams import stream_of
from tests.property import hostile_bytes
from tests.property.hostile_bytes import COLUMNS, damaged, nested

Payload = tuple[str, bytes, int]
"""Name of the family, the bytes, and how many they are without compression."""
Family = Callable[[random.Random, int], bytes]


def payloads_of(
    families: tuple[Family, ...], seed: int, numbers: range, most: int
) -> Iterator[Payload]:
    """Yield payloads by number, so that each can be made again by itself."""
    for number in numbers:
        chance = random.Random(f"{seed} {number}")
        size = int(2 ** chance.uniform(3, most.bit_length() - 1))
        family = chance.choice(families)
        made = family(chance, size)[:most]
        for _ in range(chance.choice((0, 0, 0, 1, 2, 5))):
            made = damaged(chance, made)
        yield family.__name__.strip("_"), made, len(made)


def _json_rows(chance: random.Random, size: int) -> bytes:
    unit = chance.choice(
        (
            b"{}\n", b"{}", b'{"i":1}\n', b'{"s":"x"}', b'{"a":[]}\n', b'{"a":{"k":[1,2]}}\n', b"[]\n",
            b'{"a":{"$value":1,"$attributes":{}}}\n', b'{"d":1e5}\n', b'{"i":null}\n', b'{"b":true}\n',
            b'{"i":1,"i":1}\n', b'{"s":"\\u0041"}\n', b'{\n  "i": 1,\n  "s": "x"\n}\n',
        )
    )  # fmt: skip
    return unit * (1 + size // len(unit))


def _json_large(chance: random.Random, size: int) -> bytes:
    unit = chance.choice(
        (
            b"[]", b"{}", b"1", b"123456", b'""', b"null", b"[[]]", b'"x"', b"1.5", b'{"k":1}', b"true",
        )
    )  # fmt: skip
    opening, closing = chance.choice(((b'{"a":[', b"]}"), (b'{"a":{"k":[', b"]}}"), (b"[", b"]")))
    return opening + b",".join([unit] * (1 + size // (len(unit) + 1))) + closing


def _json_deep(chance: random.Random, size: int) -> bytes:
    depth = chance.choice((60, 190, 1000, size // 2))
    opening, closing = chance.choice(((b"[", b"]"), (b'{"k":', b"}")))
    return b'{"a":' + opening * depth + b"1" + closing * depth + b"}"


def _json_keys(_chance: random.Random, size: int) -> bytes:
    return b"{" + b",".join(b'"k%d":1' % n for n in range(1 + size // 9)) + b"}"


def _json_noise(chance: random.Random, size: int) -> bytes:
    return bytes(chance.choices(b'{}[]":,0123456789.eE+-truefalsn \\u$', k=size))


def _noise(chance: random.Random, size: int) -> bytes:
    return chance.randbytes(size)


Cell = tuple[int, int, bytes]
"""Id, kind and bytes of a value."""


def rowset_of(rows: list[list[Cell]]) -> bytes:
    """Return a rowset of values."""
    return struct.pack("<Q", len(rows)) + b"".join(map(_packed, rows))


def _packed(row: list[Cell]) -> bytes:
    found = [struct.pack("<Q", len(row))]
    for place, kind, body in row:
        length = len(body) if kind >= 16 else 0
        found.append(struct.pack("<HBBI", place, kind, 0, length) + body + bytes(-len(body) % 8))
    return b"".join(found)


def _rowset(chance: random.Random, size: int) -> bytes:
    """Rows of values; those of one rowset are alike most of the time."""
    alike = chance.random() < 0.7
    words, count = [], 0
    made = _rowset_row(chance)
    total = 0
    while total < size:
        row = made if alike else _rowset_row(chance)
        words.append(row)
        total += len(row)
        count += 1
    return struct.pack("<Q", chance.choice((count, count, count, count + 1))) + b"".join(words)


def _rowset_row(chance: random.Random) -> bytes:
    found = []
    for place in range(chance.choice((0, 1, 1, 2, 7))):
        kind = chance.choice((2, 3, 4, 5, 6, 16, 16, 17, 18))
        body = b""
        if kind in (3, 4, 5, 6):
            body = chance.choice((bytes(8), chance.randbytes(8)))
        elif kind == 16:
            body = chance.randbytes(chance.choice((0, 1, 8, 100)))
        elif kind > 16:
            body = nested(chance, chance.choice((0, 1, 3)))
        found.append((place, kind, body))
    return _packed(found)


def _rowset_large(chance: random.Random, size: int) -> bytes:
    unit = chance.choice((b"[];", b"{};", b"#;", b"\x02\x02;", b"[[];];", b"<>#;", b"\x01\x00;"))
    rows = chance.choice((1, 1, 40, 1000))
    body = b"[" + unit * (1 + size // rows // len(unit)) + b"]"
    value = (chance.randrange(7), chance.choice((17, 18)), body)
    return rowset_of([[value]] * rows)


def _rowset_words(chance: random.Random, size: int) -> bytes:
    """Words that may be a count, a header or a value."""
    words = (0, 1, 2, 0x20000, 0x30000, 0x100000, 0x110000, (1 << 64) - 1, size // 8, 1 << 40)
    return b"".join(struct.pack("<Q", chance.choice(words)) for _ in range(2 + size // 8))


def arrow_payloads(seed: int, numbers: range, most: int) -> Iterator[Payload]:
    """Yield Arrow streams, some of them compressed or damaged."""
    for number in numbers:
        chance = random.Random(f"{seed} {number}")
        size = int(2 ** chance.uniform(3, most.bit_length() - 2))
        names = chance.sample(list(COLUMNS), chance.choice((1, 1, 2, 7)))
        fitting = chance.random() < 0.9
        kinds = [chance.choice(_fitting(number % 4, name) if fitting else _ARROW) for name in names]
        rows = chance.choice((1, 3, 40, 1000, 1 << 30))
        columns = [kind(chance, size // len(names), rows) for kind in kinds]
        count = min(len(array) for array, _ in columns)
        fields = [
            pa.field(name, array.type, metadata={"YtType": "yson"} if is_yson else None)
            for name, (array, is_yson) in zip(names, columns, strict=True)
        ]
        batch = pa.record_batch([array[:count] for array, _ in columns], schema=pa.schema(fields))
        compression = chance.choice((None, None, "lz4", "zstd"))
        made = stream_of(batch, compression)
        length = max(len(made), batch.nbytes) if compression else len(made)
        for _ in range(chance.choice((0, 0, 0, 1, 2))):
            made = damaged(chance, made)
        yield "+".join(str(array.type)[:12] for array, _ in columns), made, max(length, len(made))


def _plain(kind: pa.DataType, width: int, value: object) -> Callable[..., tuple[pa.Array, bool]]:
    def made(chance: random.Random, size: int, rows: int) -> tuple[pa.Array, bool]:
        count = max(1, min(rows, size // width))
        chosen = chance.choice((value, None))
        return pa.array([chosen], kind).take(pa.array([0] * count, pa.int32())), False

    return made


def _yson_values(chance: random.Random, size: int, rows: int) -> tuple[pa.Array, bool]:
    unit = chance.choice((b"[];", b"{};", b"#;", b"[#;];", b"\x02\x02;", b"<>#;"))
    large = b"[" + unit * (1 + size // min(rows, max(1, size // 8)) // len(unit)) + b"]"
    count = max(1, min(rows, size // (len(large) + 4)))
    return pa.array([large] * count, pa.binary()), True


def _lists(kind: pa.DataType, value: object) -> Callable[..., tuple[pa.Array, bool]]:
    def made(_chance: random.Random, size: int, rows: int) -> tuple[pa.Array, bool]:
        total = max(1, size // 8)
        count = max(1, min(rows, total))
        return pa.array([[value] * (total // count)] * count, pa.list_(kind)), False

    return made


def _dictionary(chance: random.Random, size: int, rows: int) -> tuple[pa.Array, bool]:
    text = b"x" * chance.choice((1, 10, size))
    count = max(1, min(rows, chance.choice((1, 10, size // 4))))
    count = min(count, max(1, 4 * size // len(text)))
    return pa.DictionaryArray.from_arrays(
        pa.array([0] * count, pa.int32()), pa.array([text])
    ), False


def _nulls(_chance: random.Random, size: int, rows: int) -> tuple[pa.Array, bool]:
    return pa.nulls(max(1, min(rows, size))), False


_STRUCT = pa.struct([(f"m{n}", pa.int64()) for n in range(3)])
_ARROW = (
    _plain(pa.int64(), 8, 5),
    _plain(pa.int8(), 1, 5),
    _plain(pa.bool_(), 1, True),
    _plain(pa.binary(), 8, b"abc"),
    _plain(pa.binary(), 1, b""),
    _plain(pa.uint64(), 8, 1 << 63),
    _plain(pa.float32(), 4, 1.5),
    _plain(pa.timestamp("ns"), 8, 5),
    _plain(pa.decimal128(38, 2), 16, None),
    _plain(pa.decimal128(10, 2), 16, 5),
    _plain(pa.decimal256(50, 2), 32, 5),
    _plain(_STRUCT, 24, {"m0": 1}),
    _plain(pa.map_(pa.binary(), pa.int64()), 20, [(b"k", 1)]),
    _lists(pa.int64(), 5),
    _lists(pa.int64(), None),
    _lists(pa.list_(pa.int64()), []),
    _lists(_STRUCT, {}),
    _yson_values,
    _yson_values,
    _dictionary,
    _nulls,
)  # fmt: skip


def _fitting(schema: int, name: str) -> tuple[Callable[..., tuple[pa.Array, bool]], ...]:
    """Return what a column of a schema takes."""
    if schema in (1, 2):
        return (*_ARROW[13:17], _yson_values, _nulls)
    if schema == 3 or name == "a":
        return (*_ARROW[:8], _yson_values, _yson_values, _yson_values, _dictionary, _nulls)
    numbers = {"i": 0, "b": 2, "s": 3, "t": 4, "u": 5, "d": 6}
    return (_ARROW[numbers[name]], _ARROW[numbers[name]], _dictionary, _nulls)


def _query(chance: random.Random, size: int) -> bytes:
    before, unit, after, end = chance.choice(
        (
            (b"* from [//t] where i in (0", b",1", b"", b")"),
            (b"i from [//t] where ", b"(", b")", b""),
            (b"i from [//t] where i = 1", b" and i = 1", b"", b""),
            (b"i from [//t] where i = 1", b" or s = 'x'", b"", b""),
            (b"i", b"+1", b"", b" from [//t]"),
            (b"", b"-", b"", b"1 from [//t]"),
            (b"", b"not ", b"", b"true from [//t]"),
            (b"i", b", i", b"", b" from [//t]"),
            (b"", b"if(true, 1, ", b")", b""),
            (b"s from [//t] where s = '", b"x", b"", b"'"),
            (b"s from [//t] where (i, s) in ((1,'a')", b",(1,'a')", b"", b")"),
            (b"case", b" when i=1 then 2", b"", b" end from [//t]"),
            (b"i from [//t] where i between 1 and 2", b" or i between (1) and (2)", b"", b""),
            (b"sum(i) from [//t] group by i", b", s", b"", b""),
            (b"i from [//t] where transform(i, (1", b",1", b"", b"), (1), 2) = 1"),
            (b"", b"[", b"]", b""), (b"", b"a.", b"", b"b"), (b"", b"\\", b"", b""),
            (b"'", b"\\x", b"", b"'"),
            (b"", b"1e", b"", b""), (b"", b"1", b"", b" from [//t]"), (b"", b" ", b"", b"i from [//t]"),
        )
    )  # fmt: skip
    count = 1 + size // (len(unit) + len(after))
    return before + unit * count + after * count + end


def _path(chance: random.Random, size: int) -> bytes:
    before, unit, after, end = chance.choice(
        (
            (b"/", b"/a", b"", b""), (b"//t", b"/@", b"", b""), (b"//t[", b"#1:#2,", b"", b"]"),
            (b"//t{a", b",a", b"", b"}"), (b"<a=", b"[", b"]", b">//t"), (b"<a=[", b"[];", b"", b"]>//t"),
            (b"//", b"\\x41", b"", b""), (b"//t[(", b"1,", b"", b")]"), (b"//t", b"[", b"]", b""),
            (b"//t", b"/begin", b"", b""), (b"//t/", b"*", b"", b""), (b"#", b"1-", b"", b""),
            (b"//t", b"&", b"", b""),
            (b"<", b"a=1;", b"", b">//t"), (b'//t{"', b"\\n", b"", b'"}'),
            (b"", b" ", b"", b"//t"), (b"", b"<a=b>", b"", b"//t"),
        )
    )  # fmt: skip
    count = 1 + size // (len(unit) + len(after))
    return before + unit * count + after * count + end


def _value(chance: random.Random, size: int) -> bytes:
    """One value of YSON."""
    family = chance.choice(hostile_bytes.FAMILIES)
    made = family(chance, size)
    return made.rstrip(b";") if chance.random() < 0.5 else b"[" + made + b"]"


def _message(chance: random.Random, size: int) -> bytes:
    """Fields of a message, nested and repeated."""
    unit = chance.choice(
        (b"\x0a\x00", b"\x08\x01", b"\x12\x02\x0a\x00", b"\x1a\x01x", b"\x22\x04\x0a\x02\x0a\x00")
    )
    return unit * (1 + size // len(unit))


def deflated(seed: int, numbers: range, most: int) -> Iterator[Payload]:
    """Yield bodies that a client has compressed."""
    for name, made, _ in payloads_of(hostile_bytes.FAMILIES, seed, numbers, most):
        chance = random.Random(f"{seed} {len(made)}")
        body = made * chance.choice((1, 1, 8))
        packed = zlib.compress(body)
        yield name, damaged(chance, packed) if chance.random() < 0.2 else packed, len(body)


JSON = (_json_rows, _json_rows, _json_large, _json_deep, _json_keys, _json_noise, _noise)
ROWSET = (_rowset, _rowset, _rowset_large, _rowset_words, _noise)
QUERY = (_query,)
PATH = (_path,)
VALUE = (_value,)
MESSAGE = (_message, _noise)
