"""Nothing is accepted and ignored: what a server knows is done, refused, or on the documented list."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
import yt.wrapper as yt

from yt_exactly_once import local
from yt_exactly_once.local import support
from yt_exactly_once.local.commands.registry import REGISTRY

LISTS = json.loads((Path(__file__).parent / "server_lists.json").read_text())
NOT_OF_THIS_CLUSTER = frozenset(("support.py", "refused.py", "message_table.py"))
PREFIX = "preserve_"
"""Parameters of copies are read by what they begin with."""


@pytest.fixture(scope="module")
def read():
    """Return every name that the code of the embedded cluster mentions, its lists apart."""
    found = set()
    for path in Path(local.__file__).parent.rglob("*.py"):
        if path.name not in NOT_OF_THIS_CLUSTER:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return found


@pytest.mark.parametrize("command", sorted(LISTS["parameters"]))
def test_every_parameter_of_a_command_is_done_refused_or_listed(read, command):
    """A parameter that a new version brings fails here until somebody decides."""
    refused = support.REFUSED_PARAMETERS.get(command, {})
    names = set(LISTS["parameters"][command].split())
    ignored = names - read - refused.keys() - support.INERT_PARAMETERS.keys()
    assert not {name for name in ignored if not name.startswith(PREFIX)}


@pytest.mark.parametrize("owner", sorted(LISTS["attributes"]))
def test_every_writable_attribute_acts_or_is_refused_or_listed(read, owner):
    """Whoever owns it: nodes, tables, queues, bundles."""
    names = set(LISTS["attributes"][owner].split())
    assert names <= read | support.REFUSED_ATTRIBUTES.keys() | support.INERT_ATTRIBUTES.keys()


@pytest.mark.parametrize("form", sorted(LISTS["format attributes"]))
def test_every_attribute_of_a_format_acts_or_is_refused_or_listed(read, form):
    """A row that looks other than asked for is wrong."""
    refused = support.REFUSED_FORMATS.get(form, {})
    names = set(LISTS["format attributes"][form].split())
    assert names <= read | refused.keys() | support.INERT_FORMATS.keys()


def test_lists_name_what_servers_know():
    """No name stays on a list after its spelling was wrong, and none is on two lists."""
    known = {name for names in LISTS["parameters"].values() for name in names.split()}
    for command, names in support.REFUSED_PARAMETERS.items():
        assert command in REGISTRY
        assert not names.keys() & support.INERT_PARAMETERS.keys()
        assert names.keys() <= known
    assert support.INERT_PARAMETERS.keys() <= known
    assert not support.REFUSED_ATTRIBUTES.keys() & support.INERT_ATTRIBUTES.keys()


@pytest.mark.parametrize(
    ("command", "name"),
    [(command, name) for command, names in support.REFUSED_PARAMETERS.items() for name in names],
)
def test_refused_parameters_are_refused(raw, tmp, command, name):
    """Before the command does anything, with the remedy; false and empty ask for nothing."""
    verb = "GET" if command in {"get", "list", "read_file", "read_table", "lookup_rows"} else "POST"
    verb = "PUT" if REGISTRY[command].input_type != "null" else verb
    answer = raw.command(verb, command, {"path": tmp, name: 1})
    assert name in answer.error["message"]
    assert support.REFUSED_PARAMETERS[command][name] in answer.error["message"]


def test_refused_attributes_and_formats_are_refused(client, tmp):
    """When they are set, when a node is created, and when a format is named."""
    with pytest.raises(yt.YtResponseError, match="queues are not exported"):
        client.create("table", f"{tmp}/q", attributes={"static_export_config": {"a": {}}})
    client.create("map_node", f"{tmp}/m")
    with pytest.raises(yt.YtResponseError, match="queues are not exported"):
        client.set(f"{tmp}/m/@static_export_config", {"a": {}})
    client.write_table(f"{tmp}/t", [{"a": 1}])
    form = yt.SchemafulDsvFormat(columns=["a"], attributes={"enable_column_names_header": True})
    with pytest.raises(yt.YtResponseError, match="enable_column_names_header"):
        list(client.read_table(f"{tmp}/t", format=form, raw=True))
