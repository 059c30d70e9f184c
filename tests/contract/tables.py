"""The table of most tests: an integer key and a text. And how a refusal is told by its code."""

from contextlib import contextmanager

import pytest
from yt.wrapper import YtResponseError

KEY = {"name": "k", "type": "int64", "sort_order": "ascending"}
VALUE = {"name": "v", "type": "string"}
SYSTEM = [
    {"name": "$timestamp", "type": "uint64"},
    {"name": "$cumulative_data_weight", "type": "int64"},
]


def columns(**types):
    """Describe columns: `name="int64"`, with `!` behind the type when it is required."""
    return [
        {"name": name, "type": kind.rstrip("!"), "required": kind.endswith("!")}
        for name, kind in types.items()
    ]


def key_columns(**types):
    return [{**column, "sort_order": "ascending"} for column in columns(**types)]


def create(client, path, schema=(KEY, VALUE), mount=True, **attributes):
    given = {"dynamic": True, "schema": list(schema), **attributes}
    client.create("table", path, attributes=given)
    if mount:
        client.mount_table(path, sync=True)
    return path


def remount(client, path):
    client.unmount_table(path, sync=True)
    client.mount_table(path, sync=True)


@contextmanager
def refused(code, match=None):
    """Expect an error of the cluster with a code, at any depth."""
    with pytest.raises(YtResponseError, match=match) as caught:
        yield caught
    assert caught.value.contains_code(code)
