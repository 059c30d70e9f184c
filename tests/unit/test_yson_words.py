"""Words of eight bytes: varints of every size and literals of every length, up to the last byte."""

import numpy as np
import pytest

from yt_exactly_once.codec.yson_marks import UnevenError
from yt_exactly_once.codec.yson_words import Words

NUMBERS = [0, 1, *(n for bits in range(7, 64, 7) for n in (2**bits - 1, 2**bits)), 2**64 - 1]


def varint(number):
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


@pytest.mark.parametrize("behind", [b"", b"\x01", b"\xff" * 20])
def test_varints_of_every_size_are_read(behind):
    """Whatever follows, and also where the bytes end with one."""
    spelled = list(map(varint, NUMBERS))
    places = np.cumsum([0, *map(len, spelled)])[:-1]
    numbers, sizes = Words(b"".join(spelled) + behind).varints(places)
    assert numbers.tolist() == NUMBERS
    assert sizes.tolist() == list(map(len, spelled))


@pytest.mark.parametrize("spelled", [b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01"])
def test_number_of_more_than_64_bits_is_refused(spelled):
    """It is damage."""
    words, places = Words(b"\x05" + spelled), np.array([0, 1])
    with pytest.raises(UnevenError):
        words.varints(places)


@pytest.mark.parametrize("length", range(1, 19))
def test_literals_of_every_length_are_found(length):
    """With the byte behind them; a byte that differs anywhere is noticed."""
    literal = bytes(range(1, length + 1))
    begins, behind = Words(literal + b"!" + literal + b"?").behind(
        np.array([0, 1, length + 1]), literal
    )
    assert begins.tolist() == [True, False, True]
    assert behind[[0, 2]].tolist() == list(b"!?")
    for place in range(length):
        damaged = bytearray(literal)
        damaged[place] ^= 0x80
        assert not Words(bytes(damaged)).behind(np.array([0]), literal)[0].any()
