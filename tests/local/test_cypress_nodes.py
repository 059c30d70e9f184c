"""Nodes: created, read, listed, set, removed, with the errors of the real tree."""

import pytest
import yt.wrapper as yt
from yt import yson
from yt.ypath import parse_ypath


def _code(call, *args, **kwargs):
    with pytest.raises(yt.YtResponseError) as caught:
        call(*args, **kwargs)
    codes = {c for c in (301, 307, 402, 500, 501, 506) if caught.value.contains_code(c)}
    return codes.pop() if codes else 1


@pytest.mark.parametrize(
    ("node_type", "value"),
    [
        ("map_node", {}),
        ("string_node", ""),
        ("int64_node", 0),
        ("uint64_node", 0),
        ("double_node", 0.0),
        ("boolean_node", False),
    ],
)
def test_created_node_has_the_default_of_its_type(client, tmp, node_type, value):
    """Scalars begin with zero or nothing."""
    client.create(node_type, f"{tmp}/a")
    assert client.get(f"{tmp}/a") == value
    assert client.get(f"{tmp}/a/@type") == node_type


def test_missing_parent_is_a_resolve_error(client, tmp):
    """Parents appear only with `recursive`."""
    assert _code(client.create, "map_node", f"{tmp}/a/b/c") == 500
    client.create("map_node", f"{tmp}/a/b/c", recursive=True)
    assert client.get(tmp) == {"a": {"b": {"c": {}}}}


def test_taken_path_is_already_exists(raw, client, tmp):
    """A second create fails unless it says what to do."""
    first = client.create("map_node", f"{tmp}/a")
    assert int(first.split("-")[2], 16) & 0xFFFF == 303
    assert _code(client.create, "map_node", f"{tmp}/a") == 501
    assert client.create("map_node", f"{tmp}/a", ignore_existing=True) == first
    assert _code(client.create, "file", f"{tmp}/a", ignore_existing=True) == 501
    will_do = {"type": "file", "path": f"{tmp}/a", "ignore_existing": True}
    answer = raw.command("POST", "create", {**will_do, "ignore_type_mismatch": True})
    assert answer.json() == {"node_id": first}
    assert client.create("map_node", f"{tmp}/a", force=True) != first


def test_unknown_type_is_refused(client, tmp):
    """What the embedded cluster lacks it says."""
    with pytest.raises(yt.YtResponseError, match="journal"):
        client.create("journal", f"{tmp}/a")


@pytest.mark.parametrize(
    ("value", "node_type"),
    [
        ("text", "string_node"),
        (5, "int64_node"),
        (yson.YsonUint64(5), "uint64_node"),
        (1.5, "double_node"),
        (True, "boolean_node"),
        ({"a": {"b": 1}}, "map_node"),
        ([1, [2]], "list_node"),
        (b"\xff\xfe", "string_node"),
    ],
)
def test_set_creates_the_type_of_the_value(client, tmp, value, node_type):
    """`set` on a free path builds nodes; attributes of the value are those of the node alone."""
    client.set(f"{tmp}/x", yson.to_yson_type(value, attributes={"mark": 1}))
    shown = client.get(f"{tmp}/x/@", attributes=["type", "mark"])
    assert shown == {"type": node_type, "mark": 1}
    read = client.get(f"{tmp}/x")
    assert not getattr(read, "attributes", None)
    assert (yson.get_bytes(read) if isinstance(value, bytes) else read) == value


def test_set_replaces_values_of_the_same_type_only(client, tmp):
    """The children of a map by force alone: else a typo in a path would cost a tree. No node is an entity."""
    client.set(f"{tmp}/x", 1)
    client.set(f"{tmp}/x", 2)
    client.set(f"{tmp}/map", {"a": 1})
    for path, value, why in (
        ("x", "two", "types must match"),
        ("map", {"b": 2}, 'without "force" flag'),
        ("free", None, "Entity nodes"),
    ):
        with pytest.raises(yt.YtResponseError, match=why):
            client.set(f"{tmp}/{path}", value)
    assert client.get(tmp) == {"x": 2, "map": {"a": 1}}
    client.set(f"{tmp}/map", {"b": 2}, force=True)
    assert client.get(f"{tmp}/map") == {"b": 2}


def test_document_is_reached_into(client, tmp):
    """Paths continue inside documents, for every verb."""
    client.create("document", f"{tmp}/d", attributes={"value": {"a": {"b": [1, 2]}}})
    assert client.get(f"{tmp}/d/a/b/-1") == 2
    client.set(f"{tmp}/d/a/c", "new")
    client.set(f"{tmp}/d/a/b/end", 3)
    client.set(f"{tmp}/d/a/b/before:0", 0)
    assert client.get(f"{tmp}/d") == {"a": {"b": [0, 1, 2, 3], "c": "new"}}
    assert client.list(f"{tmp}/d/a") == ["b", "c"]
    assert client.exists(f"{tmp}/d/a/b/3")
    assert not client.exists(f"{tmp}/d/a/b/4")
    client.remove(f"{tmp}/d/a/b/0")
    client.remove(f"{tmp}/d/a/c")
    assert client.get(f"{tmp}/d") == {"a": {"b": [1, 2, 3]}}
    assert _code(client.get, f"{tmp}/d/zz") == 500


def test_get_of_a_map_shows_structure(client, tmp):
    """Not content, nor what is below an opaque map; each node has the asked attributes that it has."""
    client.create("table", f"{tmp}/t")
    client.create("document", f"{tmp}/d", attributes={"value": 5, "mark": "x"})
    client.set(f"{tmp}/a", {"b": 1})
    assert client.get(tmp) == {"a": {"b": 1}, "t": None, "d": None}
    client.set(f"{tmp}/a/@opaque", True)
    shown = client.get(tmp, attributes=["type", "mark"])
    assert sorted(shown) == ["a", "d", "t"]
    assert not isinstance(shown["a"], dict)
    assert client.get(f"{tmp}/a") == {"b": 1}
    assert shown.attributes == {"type": "map_node"}
    assert shown["d"].attributes == {"type": "document", "mark": "x"}


def test_list_gives_sorted_names(client, tmp):
    """With attributes on request, cut on request with a mark that says so, and of maps only."""
    for name in "bca":
        client.create("map_node", f"{tmp}/{name}")
    assert client.list(tmp) == ["a", "b", "c"]
    assert client.list(tmp, attributes=["type"])[0].attributes == {"type": "map_node"}
    cut = client.list(tmp, max_size=2)
    assert (list(cut), cut.attributes) == (["a", "b"], {"incomplete": True})
    client.set(f"{tmp}/leaf", 1)
    with pytest.raises(yt.YtResponseError, match='"List" method is not supported'):
        client.list(f"{tmp}/leaf")


def test_exists_never_fails_on_a_missing_path(client, tmp):
    """Neither below nothing nor below a leaf."""
    client.set(f"{tmp}/a", 1)
    for path in ("missing", "missing/deep", "a/below", "a/@nothing", "missing/@type"):
        assert not client.exists(f"{tmp}/{path}")
    assert client.exists(f"{tmp}/a/@type")
    assert client.exists(f"{tmp}/a/@")


def test_remove_spares_children_unless_told(client, tmp):
    """`recursive` takes them along, `/*` takes them alone, `force` makes it idempotent; the root stays."""
    client.set(f"{tmp}/a", {"b": 1, "c": {"d": 2}})
    assert _code(client.remove, f"{tmp}/a") == 506
    client.remove(f"{tmp}/a/*", recursive=True)
    assert client.get(f"{tmp}/a") == {}
    client.set(f"{tmp}/a/b", 1)
    client.remove(f"{tmp}/a", recursive=True)
    assert _code(client.remove, f"{tmp}/a") == 500
    client.remove(f"{tmp}/a", force=True)
    client.remove(f"{tmp}/a/b/c", force=True)
    with pytest.raises(yt.YtResponseError, match="Cannot remove the root"):
        client.remove("/", recursive=True, force=True)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a/b", r"a\/b"),
        ("@x", r"\@x"),
        ("&*[{", r"\&\*\[\{"),
        ("\\", r"\\"),
        ("ы", r"\xd1\x8b"),
        ("with space", "with space"),
    ],
)
def test_escaped_names_round_trip(raw, client, tmp, name, path):
    """Any UTF-8 name can be spelled; `@path` spells it the same way."""
    assert (
        raw.command("POST", "create", {"type": "map_node", "path": f"{tmp}/{path}"}).status == 200
    )
    assert client.list(tmp) == [name]
    answer = raw.command("GET", "get", {"path": f"{tmp}/{path}/@key", "return_only_value": True})
    assert answer.json().encode("latin-1").decode() == name


BROKEN_RICH = ("", "tmp", "{a}", "[#1]", "//t{a", "//t[#1", "//t[\x01", "//t[]x")


@pytest.mark.parametrize(
    ("command", "path", "text"),
    [
        ("get", "home", "valid root-designator"),
        ("get", "", "valid root-designator"),
        ("get", "//a//b", 'Expected "literal" in YPath but found "slash" token "/"'),
        ("get", "//a/", "in YPath but found end-of-string; please note"),
        ("list", "//", "in YPath but found end-of-string; please note"),
        ("get", r"//a\q", "Invalid escape sequence"),
        ("get", "//a[#1:", "Unexpected end of stream"),
        ("get", "//a{x", "Unexpected end of stream"),
        ("get", "<a=1//x", "Unexpected"),
        *(("parse_ypath", path, "") for path in BROKEN_RICH),
    ],
)
def test_bad_syntax_of_a_path_is_named(raw, command, path, text):
    """The error says where the path goes wrong."""
    answer = raw.command("GET", command, {"path": path})
    assert answer.status == 400
    assert text in answer.error["message"] != "Internal error"


def test_objects_are_found_by_id(client, tmp):
    """`#id` is a root of its own."""
    client.set(f"{tmp}/a", {"b": 1})
    node_id = client.get(f"{tmp}/a/@id")
    assert client.get(f"#{node_id}/b") == 1
    assert client.get(f"#{node_id}/@path") == f"{tmp}/a"
    assert not client.exists("#1-1-1012f-ffff")


@pytest.mark.parametrize("form", ["json", "yson"])
def test_bottomless_value_is_refused(raw, client, tmp, form):
    """What could not be read back is not written, whichever way it comes."""
    parameters = {"path": f"{tmp}/x", "input_format": form}
    for depth in (250, 5000, 100_000):
        body = b"[" * depth + b"]" * depth
        assert raw.command("PUT", "set", parameters, body).status == 400
    client.create("document", f"{tmp}/d", attributes={"value": {}})
    deep = f"{tmp}/d" + "/x" * 300
    assert raw.command("PUT", "set", {"path": deep, "recursive": True}, b"1").status == 400
    path = f"{tmp}/m" + "/x" * 300
    answer = raw.command("POST", "create", {"path": path, "type": "map_node", "recursive": True})
    assert "Depth limit" in answer.error["message"]
    assert client.get(tmp) == {"d": None}


@pytest.mark.parametrize(
    "path",
    [
        "//",
        "//tmp/t",
        "  //tmp/t ",
        " <a=b; c=[1u]> //tmp/t",
        "//tmp/a\\[b] and c{d, e}",
        "//[abc: (x, #)]",
        "//tmp/*[#1, #2 : #3 , (a, 1.5):]",
        "//tmp/t[\x01\x06abc:\x03\x00\x00\x00\x00\x00\x00\x03\x3f,\x05, \x02\x09]",
        "local://tmp/t{a}",
        "<append=%true>//tmp/t{a,b}[#1:#3,x,(1u,%true):]",
        "//tmp/before:2[:(#, 10)]",
    ],
)
def test_rich_path_is_read_like_by_the_client(raw, path):
    """The client has a parser of its own; both agree on every form."""
    expected = parse_ypath(path)
    parameters = {"path": path, "output_format": "yson"}
    found = raw.command("GET", "parse_ypath", parameters).yson()["path"]
    assert str(found) == str(expected)
    assert found.attributes == expected.attributes


def test_attributes_whose_names_are_no_utf8_are_refused(client, tmp):
    """Values may hold any bytes, their names may not; nothing is left of a refused tree."""
    client.set(f"{tmp}/value", b"\xff")
    assert client.get(f"{tmp}/value") == b"\xff"
    named = yson.to_yson_type({}, attributes={b"\xee": 1})
    for value in (named, {"a": named}):
        with pytest.raises(yt.YtResponseError, match="not UTF-8"):
            client.set(f"{tmp}/tree", value, force=True)
    assert not client.exists(f"{tmp}/tree")


def test_chunks_are_objects(client, tmp):
    """Tools ask chunks for their codecs and sizes."""
    client.create("file", f"{tmp}/f", attributes={"compression_codec": "brotli_4"})
    client.write_file(f"{tmp}/f", b"content")
    (chunk_id,) = client.get(f"{tmp}/f/@chunk_ids")
    shown = client.get(f"#{chunk_id}/@", attributes=["compression_codec", "type"])
    assert shown == {"compression_codec": "brotli_4", "type": "chunk"}
    assert client.get(f"#{chunk_id}/@uncompressed_data_size") == 7
    client.remove(f"{tmp}/f")
    assert not client.exists(f"#{chunk_id}")


def test_pretty_json_is_indented(client, tmp):
    """Four spaces for each level."""
    client.set(f"{tmp}/a", {"list": [1], "text": "x"})
    shown = client.get(f"{tmp}/a", format="<format=pretty>json")
    assert shown == b'{\n    "list": [\n        1\n    ],\n    "text": "x"\n}'
