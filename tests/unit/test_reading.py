"""Whole tables: the first keys of tablets, as queries have them."""

import pickle
from types import SimpleNamespace

from yt import yson

from yt_exactly_once.ytsaurus.reading import WholeTable

KEYS = b'[[];["\\xff\\"";a;#;%true;5u;-3;1.5]]'


def test_tablet_may_begin_at_a_key_of_any_kind():
    """The tasks get it by pickle, which bytes that are no UTF-8 do not survive as the client has them."""
    found = {"type": "table", "id": "1", "dynamic": True, "tablet_state": "mounted"}
    attributes = {**found, "pivot_keys": yson.loads(KEYS)}
    client = SimpleNamespace(get=lambda *_, **__: SimpleNamespace(attributes=attributes))
    table = WholeTable.look(SimpleNamespace(reader=client), "//t")
    first, second = pickle.loads(pickle.dumps(table.pivots))
    assert first == ()
    assert second == (r'"\xff\x22"', r'"\x61"', "null", "true", "5u", "-3", "1.5")
