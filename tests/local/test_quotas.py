"""Quotas: what an account or a bundle has no room for is refused, with the code and the text of a server."""

import pytest

from tests.contract.tables import create, refused

ACCOUNT, BUNDLE = 902, 1720


@pytest.fixture
def limit(client, tmp):
    """Return a function that sets a limit of the account of `tmp`, or of the bundle of its tables."""
    name = tmp.rpartition("/")[2]
    client.create("account", attributes={"name": name})
    client.create("tablet_cell_bundle", attributes={"name": name})
    client.set(f"{tmp}/@account", name)
    client.set(f"{tmp}/@tablet_cell_bundle", name)

    def set_limit(resource, value, *, of="accounts"):
        client.set(f"//sys/{of}/{name}/@resource_limits/{resource}", value)

    return set_limit


def test_nodes_and_content_need_room(client, tmp, limit):
    """A write that goes over the limit of bytes is the last one."""
    limit("node_count", 2)
    client.create("table", f"{tmp}/t")
    with refused(ACCOUNT, "is over Cypress node count limit"):
        client.create("map_node", f"{tmp}/m")
    limit("node_count", 5)
    limit("disk_space_per_medium/default", 100)
    client.write_table(f"{tmp}/t", [{"v": "x" * 200}])
    for write in (
        lambda: client.write_table(f"<append=%true>{tmp}/t", [{"v": "y"}]),
        lambda: client.copy(f"{tmp}/t", f"{tmp}/c"),
    ):
        with refused(ACCOUNT, 'is over disk space limit in medium "default"'):
            write()
    client.copy(f"{tmp}/t", f"{tmp}/c", pessimistic_quota_check=False)
    usage = client.get(f"//sys/accounts/{client.get(tmp + '/@account')}/@resource_usage")
    assert (usage["node_count"], usage["chunk_count"]) == (3, 2)


@pytest.mark.parametrize(
    ("of", "code"), [("accounts", ACCOUNT), ("tablet_cell_bundles", BUNDLE)], ids=str
)
def test_tablets_need_room(client, tmp, limit, of, code):
    """However they come to be."""
    limit("tablet_count", 1, of=of)
    with refused(code, "is over tablet count limit"):
        create(client, f"{tmp}/t", mount=False, tablet_count=2)
    path = create(client, f"{tmp}/t", mount=False)
    client.create("table", f"{tmp}/s", attributes={"schema": [{"name": "v", "type": "int64"}]})
    for change in (
        lambda: client.reshard_table(path, [[], [1]]),
        lambda: client.copy(path, f"{tmp}/c"),
        lambda: client.alter_table(f"{tmp}/s", dynamic=True),
    ):
        with refused(code, "is over tablet count limit"):
            change()


def test_rows_are_refused_where_the_account_is_over_its_limit(client, tmp, limit):
    """Only what is flushed counts; and memory only of tables that are kept there."""
    path = create(client, f"{tmp}/t")
    limit("disk_space_per_medium/default", 0)
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    client.freeze_table(path, sync=True)
    client.unfreeze_table(path, sync=True)
    with refused(ACCOUNT, 'violates disk space limit for medium "default"'):
        client.insert_rows(path, [{"k": 2, "v": "x"}])
    limit("disk_space_per_medium/default", 1000)
    client.insert_rows(path, [{"k": 2, "v": "x"}])
    client.unmount_table(path, sync=True)
    client.set(f"{path}/@in_memory_mode", "compressed")
    limit("tablet_count", 1, of="tablet_cell_bundles")
    with refused(BUNDLE, "is over tablet static memory limit"):
        client.mount_table(path)
