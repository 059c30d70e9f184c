"""Copy, move and link: what goes along, what stays, and what is refused."""

import pytest
import yt.wrapper as yt

from tests.contract.tables import create, refused


@pytest.fixture
def source(client, tmp):
    path = f"{tmp}/source"
    client.create("map_node", path, attributes={"mark": 1})
    client.set(f"{path}/scalar", 5)
    client.create("document", f"{path}/document", attributes={"value": {"a": 1}})
    client.write_file(f"{path}/file", b"content")
    client.write_table(f"{path}/table", [{"a": 1}])
    return path


def test_copy_is_a_whole_of_its_own(client, tmp, source):
    """Everything below goes along, under new ids; later changes do not meet."""
    client.copy(source, f"{tmp}/copy")
    assert client.get(f"{tmp}/copy/@mark") == 1
    assert client.get(f"{tmp}/copy/scalar") == 5
    assert client.get(f"{tmp}/copy/document") == {"a": 1}
    assert client.get(f"{tmp}/copy/@id") != client.get(f"{source}/@id")
    client.write_file(f"{source}/file", b"changed")
    client.remove(f"{source}/table")
    assert client.read_file(f"{tmp}/copy/file").read() == b"content"
    assert list(client.read_table(f"{tmp}/copy/table")) == [{"a": 1}]


def test_move_keeps_the_id(client, tmp, source):
    """The node itself changes its place."""
    node_id = client.get(f"{source}/@id")
    client.move(source, f"{tmp}/moved")
    assert not client.exists(source)
    assert client.get(f"{tmp}/moved/@id") == node_id
    assert client.get(f"{tmp}/moved/@path") == f"{tmp}/moved"
    assert client.read_file(f"{tmp}/moved/file").read() == b"content"


@pytest.mark.parametrize("verb", ["copy", "move"])
def test_taken_destination_is_refused_unless_told_otherwise(client, tmp, source, verb):
    """`force` replaces it, `ignore_existing` leaves it to copies, and both contradict each other."""
    client.set(f"{tmp}/taken", 1)
    operation, ends = getattr(client, verb), (f"{source}/scalar", f"{tmp}/taken")
    with refused(501):
        operation(*ends)
    if verb == "copy":
        client.copy(*ends, ignore_existing=True)
        with pytest.raises(yt.YtResponseError, match="Cannot specify both"):
            client.copy(*ends, force=True, ignore_existing=True)
    assert client.get(f"{tmp}/taken") == 1
    operation(*ends, force=True)
    assert client.get(f"{tmp}/taken") == 5


@pytest.mark.parametrize("verb", ["copy", "move"])
def test_impossible_places_are_refused(client, tmp, source, verb):
    """A source that is missing, a place below itself, and missing parents, which appear with `recursive`."""
    operation = getattr(client, verb)
    for wrong in ((f"{tmp}/missing", f"{tmp}/target"), (source, f"{tmp}/a/b")):
        with pytest.raises(yt.YtResponseError) as caught:
            operation(*wrong)
        assert caught.value.is_resolve_error()
    with pytest.raises(yt.YtResponseError, match="descendant"):
        operation(source, f"{source}/below")
    operation(source, f"{tmp}/a/b", recursive=True)
    assert client.get(f"{tmp}/a/b/scalar") == 5


def test_copy_of_an_unmounted_dynamic_table_has_its_rows(client, tmp):
    """Mounted tables are refused, as on a real cluster."""
    create(client, f"{tmp}/t")
    client.insert_rows(f"{tmp}/t", [{"k": 1, "v": "a"}])
    with pytest.raises(yt.YtResponseError, match="not all tablets"):
        client.copy(f"{tmp}/t", f"{tmp}/c")
    assert not client.exists(f"{tmp}/c")
    client.unmount_table(f"{tmp}/t", sync=True)
    client.copy(f"{tmp}/t", f"{tmp}/c")
    client.mount_table(f"{tmp}/c", sync=True)
    assert list(client.lookup_rows(f"{tmp}/c", [{"k": 1}])) == [{"k": 1, "v": "a"}]


def test_link_leads_to_its_target(client, tmp, source):
    """Reading and writing through a link reach the target."""
    client.link(source, f"{tmp}/link")
    assert client.get(f"{tmp}/link/scalar") == 5
    client.set(f"{tmp}/link/scalar", 6)
    assert client.get(f"{source}/scalar") == 6
    assert client.get(f"{tmp}/link/@type") == "map_node"
    assert client.get(f"{tmp}/link&/@type") == "link"
    assert client.get(f"{tmp}/link&/@target_path") == source
    assert client.get(f"{tmp}/link/@path") == source


def test_link_is_a_node_of_its_own(client, tmp, source):
    """Removing it leaves its target; without a target it is broken, and made by force only."""
    client.link(source, f"{tmp}/link")
    client.remove(f"{tmp}/link")
    assert not client.exists(f"{tmp}/link&")
    client.link(source, f"{tmp}/link")
    assert not client.get(f"{tmp}/link&/@broken")
    client.remove(source, recursive=True)
    assert client.get(f"{tmp}/link&/@broken")
    assert not client.exists(f"{tmp}/link")
    client.copy(f"{tmp}/link", f"{tmp}/copy")
    assert client.get(f"{tmp}/copy&/@target_path") == source
    for call in (lambda: client.get(f"{tmp}/link"), lambda: client.link(source, f"{tmp}/other")):
        with pytest.raises(yt.YtResponseError) as caught:
            call()
        assert caught.value.is_resolve_error()
    client.link(source, f"{tmp}/other", force=True)
    assert client.exists(f"{tmp}/other&")


def test_move_keeps_what_it_is_told_to_keep(client, tmp, source):
    """As a copy does; the time of creation always stays."""
    given = {"account": "sys", "expiration_time": "2050-01-01T00:00:00.000000Z", "mine": 1}
    names = ["account", "expiration_time", "creation_time", "mine"]
    client.create("map_node", f"{source}/old", attributes=given)
    client.create("table", f"{source}/old/below", attributes=given)
    before = client.get(f"{source}/old", attributes=names).attributes
    client.move(f"{source}/old", f"{tmp}/a", preserve_account=True, preserve_expiration_time=True)
    for path in (f"{tmp}/a", f"{tmp}/a/below"):
        moved = client.get(f"{path}/@", attributes=names)
        assert {**moved, "creation_time": 0} == {**before, "creation_time": 0}
    client.move(f"{tmp}/a", f"{tmp}/b")
    plain = client.get(f"{tmp}/@account")
    for path in (f"{tmp}/b", f"{tmp}/b/below"):
        moved = client.get(f"{path}/@", attributes=names)
        assert (moved["account"], moved["mine"]) == (plain, 1)
        assert "expiration_time" not in moved
    assert client.get(f"{tmp}/b/@creation_time") == before["creation_time"]
