"""Nothing is accepted and ignored: what a server knows is done, refused, or on the documented list."""

import ast
import json
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import yt.wrapper as yt

from tests.contract.tables import VALUE, create, key_columns
from tests.rpc_client import RawRpc, RpcError, message
from yt_exactly_once import local
from yt_exactly_once.local import support
from yt_exactly_once.local.commands.registry import REGISTRY
from yt_exactly_once.local.rpc import message_types

ROOT = Path(__file__).parents[2]
INERT = tomllib.loads((ROOT / "docs/without_effect.toml").read_text())
LISTS = json.loads((Path(__file__).parent / "server_lists.json").read_text())
NOT_OF_THIS_CLUSTER = frozenset(("support.py", "message_table.py"))
DEEPER = {"trimmed_row_counts"}
"""Parameters that a module reads which the module of the command does not import."""

PREFIX = "preserve_"
"""Parameters of copies are read by what they begin with."""


@cache
def mentioned(path):
    """Return the names that a file mentions; the lists themselves mention none."""
    if path.name in NOT_OF_THIS_CLUSTER:
        return set()
    nodes = ast.walk(ast.parse(path.read_text()))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


@pytest.fixture(scope="module")
def read():
    """Return every name that the code of the embedded cluster mentions, its lists apart."""
    return set().union(*map(mentioned, Path(local.__file__).parent.rglob("*.py")))


def read_by(command):
    """Return the names that the module of a command mentions, and those that it imports."""
    own = sys.modules[REGISTRY[command].handler.__module__]
    used = {getattr(item, "__module__", None) or "" for item in vars(own).values()}
    used |= {item.__name__ for item in vars(own).values() if isinstance(item, ModuleType)}
    modules = (sys.modules.get(name) for name in {own.__name__, *used} if local.__name__ in name)
    return set().union(*(mentioned(Path(module.__file__)) for module in modules if module))


@pytest.mark.parametrize("command", sorted(LISTS["parameters"]))
def test_every_parameter_of_a_command_is_done_refused_or_listed(command):
    """A parameter that a new version brings fails here until somebody decides."""
    refused = support.REFUSED_PARAMETERS.get(command, {})
    names = set(LISTS["parameters"][command].split()) - DEEPER
    ignored = names - read_by(command) - refused.keys() - INERT["parameters"].keys()
    assert not {name for name in ignored if not name.startswith(PREFIX)}


@pytest.mark.parametrize("message", sorted(LISTS["request fields"]))
def test_every_field_of_a_request_over_rpc_is_read_or_listed(message):
    """One that is refused is read too, and no field that a server knows is dropped unseen."""
    fields = {
        field.name
        for entry in message_types.entries()
        if entry.name == message
        for field in entry.fields
    }
    inert = INERT["fields"].keys() | INERT["parameters"].keys()
    assert set(LISTS["request fields"][message].split()) <= fields | inert


@pytest.mark.parametrize("owner", sorted(LISTS["attributes"]))
def test_every_writable_attribute_acts_or_is_refused_or_listed(read, owner):
    """Whoever owns it: nodes, tables, queues, bundles."""
    names = set(LISTS["attributes"][owner].split())
    assert names <= read | support.REFUSED_ATTRIBUTES.keys() | INERT["attributes"].keys()


@pytest.mark.parametrize("form", sorted(LISTS["format attributes"]))
def test_every_attribute_of_a_format_acts_or_is_refused_or_listed(read, form):
    """A row that looks other than asked for is wrong."""
    refused = support.REFUSED_FORMATS.get(form, {})
    names = set(LISTS["format attributes"][form].split())
    assert names <= read | refused.keys() | INERT["formats"].keys()


def test_lists_name_what_servers_know():
    """No name stays on a list after its spelling was wrong, and none is on two lists."""
    known = {name for names in LISTS["parameters"].values() for name in names.split()}
    for command, names in support.REFUSED_PARAMETERS.items():
        assert command in REGISTRY
        assert not names.keys() & INERT["parameters"].keys()
        assert names.keys() <= known
    assert INERT["parameters"].keys() <= known
    assert not support.REFUSED_ATTRIBUTES.keys() & INERT["attributes"].keys()


@pytest.mark.parametrize(
    ("command", "name"),
    [(command, name) for command, names in support.REFUSED_PARAMETERS.items() for name in names],
)
def test_refused_parameters_are_refused(raw, tmp, command, name):
    """Before the command does anything, with the remedy; false and empty ask for nothing."""
    verb = "GET" if command in {"get", "list", "read_file", "read_table", "select_rows"} else "POST"
    verb = "PUT" if REGISTRY[command].input_type != "null" else verb
    answer = raw.command(verb, command, {"path": tmp, name: 1})
    assert name in answer.error["message"]
    assert support.REFUSED_PARAMETERS[command][name] in answer.error["message"]
    answer = raw.command(verb, command, {"path": tmp, name: "false"})
    assert "not supported" not in answer.headers.get("x-yt-error", "")


def test_refused_attributes_and_formats_are_refused(client, tmp):
    """When they are set, when a node is created, and when a format is named."""
    with pytest.raises(yt.YtResponseError, match="queues are not exported"):
        client.create("table", f"{tmp}/q", attributes={"static_export_config": {"a": {}}})
    client.create("map_node", f"{tmp}/m")
    with pytest.raises(yt.YtResponseError, match="queues are not exported"):
        client.set(f"{tmp}/m/@static_export_config", {"a": {}})
    for name in ("compression_ratio", "md5", "optimize_for_statistics", "update_mode"):
        with pytest.raises(yt.YtResponseError, match="it is not computed"):
            client.set(f"{tmp}/m/@{name}", "x")
    client.write_table(f"{tmp}/t", [{"a": 1}])
    form = yt.SchemafulDsvFormat(columns=["a"], attributes={"enable_column_names_header": True})
    with pytest.raises(yt.YtResponseError, match="enable_column_names_header"):
        list(client.read_table(f"{tmp}/t", format=form, raw=True))


def test_what_is_refused_over_http_is_refused_over_rpc(cluster, client, tmp):
    """The field is there, whatever its value; and a tablet is mounted to a cell that exists."""
    create(client, f"{tmp}/q", [VALUE], mount=False)
    other = (1, 2)
    with RawRpc(cluster.rpc_addresses[0]) as rpc:
        for method, text, fields in (
            ("AlterTable", "there is no replication", {"upstream_replica_id": other}),
            ("MountTable", "No such tablet cell", {"cell_id": other}),
            ("GetNode", "use max_size", {}),
            ("WriteTable", "in the wire format only", {"format": b"yson"}),
        ):
            request = message(f"TReq{method}", path=f"{tmp}/q", **fields)
            if method == "GetNode":
                request.complexity_limits.node_count = 1
            with pytest.raises(RpcError, match=text):
                rpc.call(method, request)


def test_consumers_that_share_a_table_are_refused(client, tmp):
    """By the name of one in a path, and by the columns of the table."""
    client.create("queue_consumer", f"{tmp}/c")
    create(client, f"{tmp}/q", [VALUE])
    named = key_columns(queue_consumer_name="string!")
    create(client, f"{tmp}/shared", [*named, *client.get(f"{tmp}/c/@schema")], mount=False)
    message = "share a table .* are not supported by the embedded cluster"
    with pytest.raises(yt.YtResponseError, match=message):
        client.register_queue_consumer(f"{tmp}/q", f"<queue_consumer_name=a>{tmp}/c", vital=False)
    client.register_queue_consumer(f"{tmp}/q", f"{tmp}/shared", vital=False)
    with pytest.raises(yt.YtResponseError, match=message):
        list(client.pull_queue_consumer(f"{tmp}/shared", f"{tmp}/q", 0, 0))
