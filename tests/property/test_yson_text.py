"""YSON of any form becomes binary, and stays the value it was."""

import math

import pytest
import yt.yson
from hypothesis import given, settings
from hypothesis import strategies as st

from yt_exactly_once.codec.values import UnfitValueError
from yt_exactly_once.codec.yson_text import to_binary


def with_attributes(value, attributes):
    typed = yt.yson.to_yson_type(value)
    typed.attributes = attributes
    return typed


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(0, 2**64 - 1).map(yt.yson.YsonUint64)
    | st.floats(allow_nan=False)
    | st.binary(max_size=12)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.binary(max_size=4), inner, max_size=3)
        | st.builds(with_attributes, inner, st.dictionaries(st.binary(min_size=1), inner, max_size=2))
    ),
    max_leaves=12,
)  # fmt: skip


def dumped(value, form):
    return yt.yson.dumps(value, yson_format=form, encoding=None)


@settings(deadline=None, max_examples=300)
@given(values.map(lambda value: [value]), st.sampled_from(["text", "pretty", "binary"]))
def test_any_form_of_a_value_becomes_the_binary_one(value, form):
    """With its attributes, the order of its keys, and the kinds of its numbers."""
    made = to_binary(0, dumped(value, form))
    assert dumped(yt.yson.loads(made, encoding=None), "binary") == dumped(value, "binary")
    # Nothing is left to rewrite.
    assert to_binary(0, made) == made


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=8) | st.text('[]{}<>=;#"a1.%-\\ \0', max_size=8).map(str.encode))
def test_other_bytes_are_the_value_that_a_reader_finds_or_refused(given_bytes):
    """Never another value, and never another error."""
    try:
        made = to_binary(0, given_bytes)
    except UnfitValueError:
        return
    found = yt.yson.loads(made, encoding=None)
    expected = yt.yson.loads(given_bytes, encoding=None)
    assert dumped(found, "binary") == dumped(expected, "binary")


@pytest.mark.parametrize("spelt", [b"%nan", b"\x03" + bytes(6) + b"\xf8\x7f"])
def test_not_a_number_passes(spelt):
    """As the double it is."""
    assert math.isnan(yt.yson.loads(to_binary(0, spelt)))
