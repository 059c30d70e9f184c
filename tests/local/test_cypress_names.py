"""Names of nodes: any bytes, by value and by path."""

from __future__ import annotations

import pytest
import yt.wrapper as yt
from hypothesis import given
from hypothesis import strategies as st
from yt import yson

from yt_exactly_once.local.cypress import node_names

RAW = b"a\xee\xffz"
ESCAPED = "a\\xee\\xffz"


@given(st.binary(min_size=1))
def test_every_name_survives(name):
    """As text in the store, and back."""
    kept = node_names.of(name)
    kept.encode()
    assert node_names.encode(kept) == name
    sent = node_names.to_wire(kept)
    assert (sent if isinstance(sent, bytes) else sent.encode()) == name


@pytest.fixture(params=["value", "path"])
def named(client, tmp, request):
    """A map with one child whose name is not UTF-8, made either way."""
    if request.param == "value":
        client.set(f"{tmp}/m", {RAW: 5})
    else:
        client.create("map_node", f"{tmp}/m")
        client.set(f"{tmp}/m/{ESCAPED}", 5)
    return f"{tmp}/m"


def test_raw_name_is_read_as_it_was_written(client, named):
    """By the map, by the list, and one by one."""
    assert {yson.get_bytes(key): value for key, value in client.get(named).items()} == {RAW: 5}
    assert [yson.get_bytes(name) for name in client.list(named)] == [RAW]
    ((name),) = client.list(named, attributes=["type"])
    assert (yson.get_bytes(name), name.attributes) == (RAW, {"type": "int64_node"})
    assert client.get(f"{named}/{ESCAPED}") == 5
    assert client.get(f"{named}/{ESCAPED}/@path") == f"{named}/{ESCAPED}"
    assert yson.get_bytes(client.get(f"{named}/{ESCAPED}/@key")) == RAW
    assert list(client.search(named)) == [named, f"{named}/{ESCAPED}"]
    assert client.get(named, format="json") == b'{"a\xc3\xae\xc3\xbfz":5}'


def test_raw_name_is_changed_like_any_other(client, named, tmp):
    """Copied, moved, locked, removed."""
    client.copy(f"{named}/{ESCAPED}", f"{named}/plain")
    client.move(f"{named}/{ESCAPED}", f"{tmp}/\\xff")
    assert client.list(named) == ["plain"]
    with client.Transaction():
        client.set(f"{tmp}/\\xff", 6)
        with (
            client.Transaction(transaction_id="0-0-0-0", ping=False),
            pytest.raises(yt.YtResponseError) as caught,
        ):
            client.remove(f"{tmp}/\\xff")
    assert caught.value.contains_code(402)
    client.remove(f"{tmp}/\\xff")
    assert not client.exists(f"{tmp}/\\xff")


def test_names_of_one_byte_difference_are_two_nodes(client, tmp):
    """Raw bytes are not mixed up with the characters that they look like."""
    for number, name in enumerate(("\\xe9", "é", "\\xc3\\xa8", "è")):
        client.set(f"{tmp}/{name}", number)
    names = {yson.get_bytes(name) for name in client.get(tmp)}
    assert names == {b"\xe9", "é".encode(), "è".encode()}
    assert client.get(f"{tmp}/è") == 3
