"""Attributes: stored and computed ones, reached into, protected where the system owns them."""

import json
import time

import pytest
import yt.wrapper as yt
from yt import yson

from tests.contract.tables import create, refused


@pytest.fixture
def node(client, tmp):
    client.create("map_node", f"{tmp}/node", attributes={"given": {"a": [1, 2]}})
    return f"{tmp}/node"


def test_paths_reach_into_attributes(client, node):
    """Those that came with the node: reading, writing and removing continue inside a value."""
    assert client.get(f"{node}/@given") == {"a": [1, 2]}
    assert client.get(f"{node}/@given/a/1") == 2
    client.set(f"{node}/@given/b", "x")
    client.remove(f"{node}/@given/a/0")
    assert client.get(f"{node}/@given") == {"a": [2], "b": "x"}
    assert client.list(f"{node}/@given") == ["a", "b"]
    assert client.exists(f"{node}/@given/b")
    assert not client.exists(f"{node}/@given/zz")


def test_missing_attribute_is_a_resolve_error(client, node):
    """The error names the attribute."""
    with pytest.raises(yt.YtResponseError, match='Attribute "nothing" is not found') as caught:
        client.get(f"{node}/@nothing")
    assert caught.value.is_resolve_error()
    assert client.get_attribute(node, "nothing", default=5) == 5


@pytest.mark.parametrize("name", ["id", "type", "path", "key", "creation_time", "revision"])
def test_system_attributes_are_protected(client, node, name):
    """They can be neither set nor removed nor given."""
    for call in (
        lambda: client.set(f"{node}/@{name}", "x"),
        lambda: client.remove(f"{node}/@{name}"),
        lambda: client.create("map_node", f"{node}/child", attributes={name: "x"}),
    ):
        with pytest.raises(yt.YtResponseError, match=f'attribute "{name}" cannot be'):
            call()
    assert not client.exists(f"{node}/child")


def test_all_attributes_are_shown_with_opaque_ones_as_entities(client, node):
    """`@` is complete, or has the names asked for; what is expensive has to be asked for by name."""
    shown = client.get(f"{node}/@")
    assert shown["type"] == "map_node"
    assert shown["given"] == {"a": [1, 2]}
    assert shown["user_attributes"] is None or not shown["user_attributes"]
    assert client.get(f"{node}/@user_attributes") == {"given": {"a": [1, 2]}}
    assert set(client.list(f"{node}/@")) == set(shown)
    asked = client.get(f"{node}/@", attributes=["type", "given", "zz"])
    assert asked == {"type": "map_node", "given": {"a": [1, 2]}}


def test_all_attributes_are_replaced_by_setting_the_map(client, node):
    """Those of users, and those of the system that may go; `@*` removes the former and leaves the latter."""
    client.set(f"{node}/@opaque", True)
    client.set(f"{node}/@", {"new": 1})
    assert client.get(f"{node}/@user_attributes") == {"new": 1}
    assert not client.get(f"{node}/@opaque")
    client.remove(f"{node}/@*")
    assert client.get(f"{node}/@user_attributes") == {}
    assert client.get(f"{node}/@type") == "map_node"


def test_change_moves_revision_and_time(client, node):
    """Watchers see that something happened."""
    before = client.get(f"{node}/@revision")
    content = client.get(f"{node}/@content_revision")
    client.set(f"{node}/@x", 1)
    assert client.get(f"{node}/@revision") > before
    assert client.get(f"{node}/@content_revision") == content
    client.create("map_node", f"{node}/child")
    assert client.get(f"{node}/@content_revision") > content


def test_attributes_of_the_root_and_of_maps(client, tmp, node):
    """Places and counts are computed."""
    assert client.get("//@type") == "map_node"
    assert client.get(f"{node}/@path") == node
    assert client.get(f"{node}/@key") == "node"
    assert client.get(f"{node}/@parent_id") == client.get(f"{tmp}/@id")
    assert client.get(f"{tmp}/@count") == 1
    assert client.get(f"{node}/@account") == "tmp"


@pytest.mark.parametrize("dynamic", [True, False])
def test_path_leads_to_attributes_of_attribute_values(client, tmp, dynamic):
    """A schema keeps two of its facts there."""
    schema = [{"name": "k", "type": "int64", "sort_order": "ascending"}, {"name": "v"}]
    schema[1]["type"] = "int64"
    client.create("table", f"{tmp}/t", attributes={"dynamic": dynamic, "schema": schema})
    where = f"{tmp}/t/@schema"
    assert client.get(f"{where}/@") == {"strict": True, "unique_keys": dynamic}
    assert client.get(f"{where}/@strict") == True  # noqa: E712 - a YSON boolean
    assert client.get(f"{where}/@unique_keys") == dynamic
    assert client.get(f"{where}/0/name") == client.get(f"{where}/-2/name") == "k"
    assert sorted(client.list(f"{where}/@")) == ["strict", "unique_keys"]
    for path, is_there in (("@strict", True), ("@", True), ("0/@", True), ("1/type", True)):
        assert client.exists(f"{where}/{path}") == is_there
    for path in ("@nothing", "0/@nothing", "2/name", "0/nothing", "@strict/x"):
        assert not client.exists(f"{where}/{path}")
        with refused(500):
            client.get(f"{where}/{path}")


@pytest.mark.parametrize("root", ["@user", "document"])
def test_attributes_inside_values_change_with_the_value(client, tmp, root):
    """In a user attribute and in a document, at any depth; alone they do not."""
    client.create("document", f"{tmp}/document", attributes={"value": {"a": [5]}})
    item = f"{tmp}/{root}/a/0"
    client.set(f"{tmp}/{root}", {"a": [yson.to_yson_type(5, {"x": {"y": 1}})]})
    assert client.get(f"{item}/@") == {"x": {"y": 1}}
    assert client.get(f"{item}/@x/y") == 1
    for change in (lambda: client.set(f"{item}/@z", 3), lambda: client.remove(f"{item}/@x/y")):
        with pytest.raises(yt.YtResponseError, match="not supported by the embedded cluster"):
            change()


def test_options_of_a_mount_have_two_names(client, tmp):
    """One value: set, shown and removed through either."""
    given = {"min_data_ttl": 1, "mount_config": {"max_data_ttl": 2}}
    client.create("table", f"{tmp}/t", attributes=given)
    assert client.get(f"{tmp}/t/@mount_config") == {"min_data_ttl": 1, "max_data_ttl": 2}
    client.set(f"{tmp}/t/@mount_config/min_data_ttl", 3)
    client.set(f"{tmp}/t/@max_data_ttl", 4)
    assert client.get(f"{tmp}/t/@min_data_ttl") == 3
    assert client.get(f"{tmp}/t/@user_attributes") == {"min_data_ttl": 3, "max_data_ttl": 4}
    client.remove(f"{tmp}/t/@mount_config/min_data_ttl")
    assert not client.exists(f"{tmp}/t/@min_data_ttl")
    client.remove(f"{tmp}/t/@max_data_ttl")
    assert client.get(f"{tmp}/t/@mount_config") == {}


def test_tables_begin_with_the_settings_of_the_folders_above(client, tmp):
    """The nearest folder wins, what is given wins over both, and folders inherit nothing."""
    client.set(f"{tmp}/@compression_codec", "zstd_5")
    client.create("map_node", f"{tmp}/a")
    client.create("table", f"{tmp}/a/t")
    client.create("table", f"{tmp}/a/u", attributes={"compression_codec": "snappy"})
    client.set(f"{tmp}/a/@compression_codec", "none")
    client.create("table", f"{tmp}/a/v")
    found = [client.get(f"{tmp}/a/{name}/@compression_codec") for name in "tuv"]
    assert found == ["zstd_5", "snappy", "none"]
    client.create("map_node", f"{tmp}/b")
    assert not client.exists(f"{tmp}/b/@compression_codec")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("account", "nobody"),
        ("tablet_cell_bundle", "nowhere"),
        ("primary_medium", "tape"),
        ("media", {"tape": {"replication_factor": 3}}),
        ("compression_codec", "gzip_normal"),
        ("erasure_codec", "reed_solomon"),
        ("optimize_for", "speed"),
        ("replication_factor", 0),
    ],
    ids=str,
)
def test_names_that_no_cluster_knows_are_refused(client, tmp, name, value):
    """When a table is created, static or dynamic, and when the attribute is set on a folder."""
    schema = [{"name": "v", "type": "int64"}]
    for dynamic in (False, True):
        given = {"dynamic": dynamic, "schema": schema, name: value}
        with pytest.raises(yt.YtResponseError):
            client.create("table", f"{tmp}/t", attributes=given)
        assert not client.exists(f"{tmp}/t")
    with pytest.raises(yt.YtResponseError):
        client.set(f"{tmp}/@{name}", value)


def test_account_is_that_of_the_folder_when_a_node_is_made(client, tmp):
    """A folder that gets another one later leaves what is below as it is."""
    client.create("map_node", f"{tmp}/a")
    client.create("table", f"{tmp}/a/old")
    client.set(f"{tmp}/a/@account", "sys")
    client.create("table", f"{tmp}/a/new")
    assert [client.get(f"{tmp}/a/{name}/@account") for name in ("old", "new")] == ["tmp", "sys"]


def test_modification_time_moves_with_the_rows(client, tmp):
    """Of a dynamic table that nobody changes otherwise."""
    create(client, f"{tmp}/q", [{"name": "v", "type": "int64"}])
    before = client.get(f"{tmp}/q/@modification_time")
    client.insert_rows(f"{tmp}/q", [{"v": 1}])
    assert client.get(f"{tmp}/q/@modification_time") > before


def _set(raw, path, value, command="set", **parameters):
    given = {"path": path, "input_format": "json", **parameters}
    return raw.command("PUT", command, given, json.dumps(value).encode())


def test_accesses_are_counted_a_moment_later(raw, client, node):
    """Reads of a node and of its rows count; those of attributes, and those that say so, do not."""
    client.get(f"{node}/@given")
    client.exists(node)
    raw.command("GET", "get", {"path": node, "suppress_access_tracking": True})
    created = client.get(f"{node}/@access_time")
    client.get(node)
    client.list(node)
    deadline = time.monotonic() + 60
    while client.get(f"{node}/@access_counter") < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert client.get(f"{node}/@access_counter") == 2
    assert client.get(f"{node}/@access_time") > created


def test_change_may_leave_the_time_of_modification(raw, client, node):
    """Tools that only look after nodes say so."""
    before = client.get(f"{node}/@modification_time")
    _set(raw, f"{node}/@x", 1, suppress_modification_tracking=True)
    assert client.get(f"{node}/@modification_time") == before
    _set(raw, f"{node}/@x", 2)
    assert client.get(f"{node}/@modification_time") > before


def test_annotation_holds_for_everything_below(client, node):
    """Who reads it learns where it is; there is none by default."""
    client.create("map_node", f"{node}/below")
    assert client.get(f"{node}/below/@annotation") is None or not client.get(f"{node}/@annotation")
    client.set(f"{node}/@annotation", "prices")
    assert client.get(f"{node}/below/@annotation") == "prices"
    assert client.get(f"{node}/below/@annotation_path") == node
    for wrong in ("a" * 1025, "\u044b", 1):
        with pytest.raises(yt.YtResponseError):
            client.set(f"{node}/@annotation", wrong)


def test_several_attributes_are_set_one_after_the_other(raw, client, node):
    """Names are paths. Masters run a request for each: those before a wrong one stay."""
    assert _set(raw, f"{node}/@", {"given/b": 1, "z": 2}, "multiset_attributes").status == 200
    assert client.get(f"{node}/@given") == {"a": [1, 2], "b": 1}
    answer = _set(raw, f"{node}/@", {"c": 3, "d/e": 4, "f": 5}, "multiset_attributes")
    assert answer.status != 200
    assert client.get(f"{node}/@c") == 3
    assert not client.exists(f"{node}/@f")


@pytest.mark.parametrize(
    "path", ["/@k", "/s", "/" + "k" * 4097], ids=["attribute", "string", "key"]
)
def test_nodes_hold_only_so_much(client, node, path):
    """65 536 bytes in a string node, 16 MiB in an attribute, 4 096 bytes in a key."""
    value = "x" * ((16 << 20) + 1 if "@" in path else 65_537 if path == "/s" else 1)
    with pytest.raises(yt.YtResponseError):
        client.set(f"{node}{path}", value)
    assert not client.exists(f"{node}{path}")


def test_document_is_its_attribute_value(client, tmp):
    """Both ways reach into it."""
    client.create("document", f"{tmp}/d", attributes={"value": {"a": 1}})
    client.set(f"{tmp}/d/@value/b", [1])
    client.remove(f"{tmp}/d/@value/a")
    assert client.get(f"{tmp}/d") == client.get(f"{tmp}/d/@value") == {"b": [1]}
    client.set(f"{tmp}/d/@value", {"c": 2})
    assert client.get(f"{tmp}/d/c") == 2


def test_parts_of_attributes_do_not_come_with_a_node(raw, node):
    """Whole attributes do."""
    for wanted in ({"paths": ["/given/a/1"]}, {"keys": ["given"]}):
        answer = raw.command("GET", "get", {"path": node, "attributes": wanted})
        assert answer.status == (400 if "paths" in wanted else 200)
        assert ("whole attributes" if "paths" in wanted else '"given"') in answer.body.decode()


@pytest.mark.parametrize("target", ["/l", "/l/below", "/other"], ids=str)
def test_link_to_itself_is_refused(client, node, target):
    """Also on the way over another link, for such links lead nowhere in finite time."""
    client.link(f"{node}/l", f"{node}/other", force=True)
    with pytest.raises(yt.YtResponseError, match="link is cyclic"):
        client.link(f"{node}{target}", f"{node}/l", force=True)
    assert not client.exists(f"{node}/l&")


@pytest.mark.parametrize(("command", "kept"), [("copy", False), ("move", True)])
def test_list_of_rights_goes_with_the_node_only(client, node, command, kept):
    """A copy begins without one, like every new node."""
    client.set(f"{node}/@inherit_acl", False)
    getattr(client, command)(node, f"{node}-2")
    assert client.get(f"{node}-2/@inherit_acl") != kept
