"""Access control: who is refused what, with the server's error, over both fronts."""

import uuid

import pytest
import yt.wrapper as yt

from tests.contract.tables import columns, create, key_columns
from tests.rpc_client import driver

ORDERED = columns(value="string")
SCHEMA = [*key_columns(key="int64"), *ORDERED]
EVERYTHING = ("read", "write", "administer", "remove", "mount")


def ace(subject, *permissions, action="allow", **fields):
    return {"action": action, "subjects": [subject], "permissions": list(permissions), **fields}


@pytest.fixture
def user(client):
    name = f"u{uuid.uuid4().hex[:8]}"
    client.create("user", attributes={"name": name})
    return name


@pytest.fixture(params=["http", "rpc"])
def as_user(request, cluster, user):
    """A client of the user over each front."""
    if request.param == "rpc":
        return driver(cluster, driver_user_name=user)
    # A tablet transaction lives on one of the two proxies.
    return cluster.client(impersonation_user=user, proxy={"enable_proxy_discovery": False})


@pytest.fixture
def tables(client, tmp):
    """A sorted table, an ordered one and a consumer, that nobody but superusers may touch."""
    for name, schema in (("sorted", SCHEMA), ("ordered", ORDERED)):
        create(client, f"{tmp}/{name}", schema, inherit_acl=False)
    client.create("queue_consumer", f"{tmp}/consumer", attributes={"inherit_acl": False})
    client.mount_table(f"{tmp}/consumer", sync=True)
    client.insert_rows(f"{tmp}/sorted", [{"key": 1, "value": "a"}])
    client.insert_rows(f"{tmp}/ordered", [{"value": "a"}])
    client.register_queue_consumer(f"{tmp}/ordered", f"{tmp}/consumer", vital=True)
    return tmp


def grant(client, path, *entries):
    client.set(f"{path}/@acl", list(entries))


def lookup_inside(client, path):
    with client.Transaction(type="tablet"):
        list(client.lookup_rows(path, [{"key": 1}]))


ACTIONS = {
    "get": ("sorted", "read", lambda c, t: c.get(f"{t}/sorted/@row_count")),
    "lookup": ("sorted", "read", lambda c, t: list(c.lookup_rows(f"{t}/sorted", [{"key": 1}]))),
    "lookup in a transaction": ("sorted", "read", lambda c, t: lookup_inside(c, f"{t}/sorted")),
    "select": ("sorted", "read", lambda c, t: list(c.select_rows(f"* from [{t}/sorted]"))),
    "read": ("sorted", "read", lambda c, t: list(c.read_table(f"{t}/sorted"))),
    "pull": ("ordered", "read", lambda c, t: list(c.pull_queue(f"{t}/ordered", 0, 0))),
    "pull as consumer": (
        "consumer",
        "read",
        lambda c, t: list(c.pull_queue_consumer(f"{t}/consumer", f"{t}/ordered", 0, 0)),
    ),
    "insert": ("sorted", "write", lambda c, t: c.insert_rows(f"{t}/sorted", [{"key": 2}])),
    "append": ("ordered", "write", lambda c, t: c.insert_rows(f"{t}/ordered", [{"value": "b"}])),
    "delete": ("sorted", "write", lambda c, t: c.delete_rows(f"{t}/sorted", [{"key": 1}])),
    "trim": ("ordered", "write", lambda c, t: c.trim_rows(f"{t}/ordered", 0, 1)),
    "advance": (
        "consumer",
        "write",
        lambda c, t: c.advance_queue_consumer(f"{t}/consumer", f"{t}/ordered", 0, None, 1),
    ),
    "set": ("sorted", "write", lambda c, t: c.set(f"{t}/sorted/@mine", 1)),
    "set acl": ("sorted", "administer", lambda c, t: c.set(f"{t}/sorted/@acl", [])),
    "unmount": ("sorted", "mount", lambda c, t: c.unmount_table(f"{t}/sorted")),
    "freeze": ("sorted", "mount", lambda c, t: c.freeze_table(f"{t}/sorted")),
    "remove": ("sorted", "remove", lambda c, t: c.remove(f"{t}/sorted")),
    "unregister": (
        "ordered",
        "remove",
        lambda c, t: c.unregister_queue_consumer(f"{t}/ordered", f"{t}/consumer"),
    ),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_action_needs_its_permission(client, tables, user, as_user, action):
    """All others are not enough, and it alone is; the error names it and the user."""
    name, permission, act = ACTIONS[action]
    others = [each for each in EVERYTHING if each != permission]
    grant(client, f"{tables}/{name}", ace(user, *others))
    with pytest.raises(yt.YtError, match=f'"{user}": "{permission}" permission') as caught:
        act(as_user, tables)
    assert caught.value.contains_code(901)
    grant(client, f"{tables}/{name}", ace(user, permission))
    act(as_user, tables)


def test_permission_counts_at_the_commit(client, cluster, tables, user):
    """Taken away after the rows were sent, nothing is written, in no table."""
    # A tablet transaction lives on one of the two proxies.
    session = cluster.client(impersonation_user=user, proxy={"enable_proxy_discovery": False})
    for name in ("sorted", "ordered"):
        grant(client, f"{tables}/{name}", ace(user, "write"))
    transaction_id = session.start_transaction(type="tablet")
    with session.Transaction(transaction_id=transaction_id, ping=False):
        session.insert_rows(f"{tables}/sorted", [{"key": 7}])
        session.insert_rows(f"{tables}/ordered", [{"value": "b"}])
    grant(client, f"{tables}/ordered", ace(user, "read"))
    with pytest.raises(yt.YtError, match='"write" permission is not allowed'):
        session.commit_transaction(transaction_id)
    assert not list(client.lookup_rows(f"{tables}/sorted", [{"key": 7}]))


def test_vital_consumers_need_a_vital_entry(client, tables, user, as_user):
    """An entry that says nothing of it is refused."""
    queue, consumer = f"{tables}/ordered", f"{tables}/consumer"
    with pytest.raises(yt.YtError, match="requires vitality"):
        grant(client, queue, ace(user, "register_queue_consumer"))
    grant(client, queue, ace(user, "register_queue_consumer", vital=False))
    as_user.register_queue_consumer(queue, consumer, vital=False)
    with pytest.raises(yt.YtError, match='"register_queue_consumer" permission'):
        as_user.register_queue_consumer(queue, consumer, vital=True)
    grant(client, queue, ace(user, "register_queue_consumer", vital=True))
    as_user.register_queue_consumer(queue, consumer, vital=True)


@pytest.mark.parametrize(
    ("mode", "allowed"),
    [
        ("object_and_descendants", [True, True, True]),
        ("object_only", [True, False, False]),
        ("descendants_only", [False, True, True]),
        ("immediate_descendants_only", [False, True, False]),
    ],
)
def test_inheritance_modes(client, tmp, user, mode, allowed):
    """As `test_cypress_acls` of the servers has them; effective entries are shown as they count."""
    attributes = {"inherit_acl": False, "acl": [ace(user, "remove", inheritance_mode=mode)]}
    client.create("map_node", f"{tmp}/m", attributes=attributes)
    client.create("map_node", f"{tmp}/m/s/r", recursive=True)
    paths = [f"{tmp}/m", f"{tmp}/m/s", f"{tmp}/m/s/r"]
    found = [client.check_permission(user, "remove", path)["action"] for path in paths]
    assert found == ["allow" if each else "deny" for each in allowed]
    assert [bool(client.get(f"{path}/@effective_acl")) for path in paths] == allowed


def test_denial_wins_through_groups(client, tmp, user, cluster):
    """Whatever the order, and the answer names the entry; an owner may be an entry's subject."""
    inner, outer = f"{user}-inner", f"{user}-outer"
    for group in (inner, outer):
        client.create("group", attributes={"name": group})
    client.add_member(user, inner)
    client.add_member(inner, outer)
    assert client.get(f"//sys/users/{user}/@member_of_closure") == [
        "everyone",
        inner,
        outer,
        "users",
    ]
    with pytest.raises(yt.YtError, match="would produce a cycle"):
        client.add_member(outer, inner)
    node = f"{tmp}/m"
    client.create("map_node", node)
    client.set(f"{node}/@owner", user)
    grant(
        client, node, ace("owner", "mount"), ace(user, "write"), ace(outer, "write", action="deny")
    )
    assert client.check_permission(user, "mount", node)["action"] == "allow"
    expected = {
        "action": "deny",
        "object_id": client.get(f"{node}/@id"),
        "object_name": f"node {node}",
        "subject_id": client.get(f"//sys/groups/{outer}/@id"),
        "subject_name": outer,
    }
    assert client.check_permission(user, "write", node) == expected
    assert driver(cluster).check_permission(user, "write", node) == expected
    with pytest.raises(yt.YtError, match=f'is denied for "{outer}" by ACE at node {node}'):
        cluster.client(impersonation_user=user).set(f"{node}/@mine", 1)
    client.remove_member(inner, outer)
    assert client.check_permission(user, "write", node)["action"] == "allow"
    client.set(f"//sys/users/{user}/@banned", True)
    assert client.check_permission(user, "write", node) == {"action": "deny"}


@pytest.mark.parametrize("state", ["banned", "unknown"])
def test_refused_user_meets_no_code_of_a_master(client, raw, user, state):
    """Proxies look at users themselves: HTTP 403, and a text.

    `TryParseUser` in `server/http_proxy/context.cpp`, `TUserBanCache::CheckUser` in
    `server/lib/security_server/user_access_validator.cpp`.
    """
    name = f"{user}-unknown"
    if state == "banned":
        name = user
        client.set(f"//sys/users/{user}/@banned", True)
    answer = raw.command("GET", "get", {"path": "/"}, headers={"X-YT-User-Name": name})
    assert answer.status == 403
    error = answer.error
    assert (error["code"], error["message"]) == (1, "User validation failed")
    (inner,) = error["inner_errors"]
    assert inner["code"] == 1
    assert state in inner["message"]


ROW_LEVEL = {"row_access_predicate": "key = 1", "inapplicable_row_access_predicate_mode": "fail"}
READS = ["lookup", "lookup in a transaction", "select", "read", "pull", "pull as consumer"]


@pytest.mark.parametrize("action", READS)
def test_rows_that_only_some_may_read_are_read_by_nobody(client, tables, user, as_user, action):
    """An entry with a condition denies all rows to users without `full_read`, whomever it is for.

    `TPermissionCache::ParseCheckPermissionResponse` in `ytlib/security_client/permission_cache.cpp`.
    """
    name, _, act = ACTIONS[action]
    path = f"{tables}/{name}"
    hidden = ace("root", "read", **ROW_LEVEL)
    everything = [ace(user, "read")] if action == "pull as consumer" else []
    grant(client, f"{tables}/ordered", *everything)
    grant(client, path, hidden, ace(user, "read"))
    assert client.get(f"{path}/@acl")[0] == {**hidden, "inheritance_mode": "object_and_descendants"}
    assert as_user.get(f"{path}/@dynamic")
    with pytest.raises(
        yt.YtError, match="row-level ACL is present, but is not supported"
    ) as caught:
        act(as_user, tables)
    assert caught.value.contains_code(901)
    grant(client, path, hidden, ace(user, "full_read"))
    act(as_user, tables)
    grant(client, path, ace(user, "read", **ROW_LEVEL))
    with pytest.raises(yt.YtError, match='"read" permission'):
        act(as_user, tables)


def test_what_creating_needs(client, tmp, user, as_user):
    """The right to write in the folder, to use its account, and to administer it for other rights."""
    folder, account = f"{tmp}/m", f"{user}-account"
    client.create("account", attributes={"name": account})
    attributes = {"inherit_acl": False, "acl": [ace(user, "read")], "account": account}
    client.create("map_node", folder, attributes=attributes)
    make = lambda **given: as_user.create("table", f"{folder}/t", attributes=given)  # noqa: E731
    for missing, entries in (
        ('"write | modify_children" permission for node', [ace(user, "read", "write")]),
        (f'"use" permission for account "{account}"', None),
    ):
        with pytest.raises(yt.YtError, match=missing):
            make()
        grant(
            client,
            folder if entries else f"//sys/accounts/{account}",
            *(entries or [ace(user, "use")]),
        )
    with pytest.raises(yt.YtError, match='"administer" permission'):
        make(acl=[])
    make()
    with pytest.raises(yt.YtError, match='"remove" permission for node'):
        as_user.move(f"{folder}/t", f"{folder}/moved")
    with pytest.raises(yt.YtError, match='"create" permission'):
        as_user.create("user", attributes={"name": f"{user}-other"})


def test_tablets_need_the_bundle_too(client, tmp, user, as_user):
    """A table may be put into any bundle; who mounts it uses the bundle, and who forces it administers it."""
    bundle, table = f"{user}-bundle", f"{tmp}/t"
    client.create("tablet_cell_bundle", attributes={"name": bundle})
    client.create("tablet_cell", attributes={"tablet_cell_bundle": bundle})
    grant(client, tmp, ace(user, *EVERYTHING))
    create(as_user, table, SCHEMA, mount=False, tablet_cell_bundle=bundle)
    with pytest.raises(yt.YtError, match=f'"use" permission for tablet cell bundle "{bundle}"'):
        as_user.mount_table(table)
    rights = f"//sys/tablet_cell_bundles/{bundle}"
    client.set(f"{rights}/@acl", [ace(user, "use")])
    as_user.mount_table(table, sync=True)
    with pytest.raises(yt.YtError, match='"administer" permission'):
        as_user.unmount_table(table, force=True)
    with pytest.raises(yt.YtError, match='"manage" permission'):
        as_user.set(f"{rights}/@bundle_controller_target_config", {})
    client.set(f"{rights}/@acl", [ace(user, "use", "administer", "manage")])
    as_user.unmount_table(table, force=True)
    as_user.set(f"{rights}/@bundle_controller_target_config", {})


def test_unreadable_children_are_not_shown(client, tmp, as_user):
    """As entities in a tree, and without attributes in a list."""
    client.create("map_node", f"{tmp}/open", attributes={"mine": 1})
    client.create("map_node", f"{tmp}/closed", attributes={"mine": 2, "inherit_acl": False})
    assert client.get(tmp) == {"open": {}, "closed": {}}
    assert as_user.get(tmp) == {"open": {}, "closed": None}
    listed = as_user.list(tmp, attributes=["mine"])
    assert {str(each): dict(each.attributes) for each in listed} == {
        "open": {"mine": 1},
        "closed": {},
    }


def test_tokens_of_users(client, cluster, user):
    """A token is its user until it is revoked, and only superusers act as others."""
    token = client.issue_token(user)
    session = cluster.client(token=token)
    assert session.get_current_user()["user"] == user
    # `THttpAuthenticator::Authenticate` in `server/http_proxy/http_authenticator.cpp`.
    with pytest.raises(yt.YtError, match="is not in impersonation whitelist") as refused:
        cluster.client(token=token, impersonation_user="root").get("/")
    assert refused.value.contains_code(111)
    for each in (session, driver(cluster, token=token)):
        with pytest.raises(yt.YtError, match=f'"{user}": "read" permission'):
            each.list("//sys/cypress_tokens")
    client.revoke_token(user, token=token)
    with pytest.raises(yt.YtError, match="Token is invalid"):
        cluster.client(token=token, proxy={"retries": {"count": 1}}).get("/")


def test_wrong_access_control_is_refused(client, tmp):
    """An entry of a subject that does not exist would allow nobody anything, silently."""
    for entry, reason in (
        (ace("nobody-knows", "read"), 'No such subject "nobody-knows"'),
        (ace("users", "raed"), "Error parsing EPermission"),
        (ace("users", "read", columns=["a"]), '"columns" is not supported'),
        (ace("users", "read", rows=["a"]), '"rows" is not supported'),
        (ace("users", "read", "write", **ROW_LEVEL), "must contain a single"),
        (ace("users", "read", action="deny", **ROW_LEVEL), "must contain a single"),
    ):
        with pytest.raises(yt.YtError, match=reason):
            grant(client, tmp, entry)
    with pytest.raises(yt.YtError, match="No such user"):
        client.check_permission("nobody-knows", "read", tmp)
