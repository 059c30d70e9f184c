"""The table of most tests: an integer key and a text."""

from __future__ import annotations

KEY = {"name": "k", "type": "int64", "sort_order": "ascending"}
VALUE = {"name": "v", "type": "string"}


def create(client, path, schema=(KEY, VALUE), **attributes):
    given = {"dynamic": True, "schema": list(schema), **attributes}
    client.create("table", path, attributes=given)
    client.mount_table(path, sync=True)
    return path
