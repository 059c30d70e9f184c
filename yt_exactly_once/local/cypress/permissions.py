"""Who may do what with an object: users, groups and access control lists, as the masters judge them.

Lists and owners are attributes of nodes, members those of groups. A list is read each time, so a right
that is taken away is gone with the next command. The user `root` is never looked up. Whatever reads or
changes the tree asks here by itself, as masters do; writes of rows are checked by their commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from yt_exactly_once.local.cypress import quotas
from yt_exactly_once.local.cypress.layout import CLUSTER_NAME, ROOT_ID
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import Code, YtError

ROOT = "root"
GUEST = "guest"
_OWNER = "owner"
_EVERYONE, _USERS, _SUPERUSERS = "everyone", "users", "superusers"
IMPLICIT = (_EVERYONE, _USERS)
"""Groups that nobody has to join."""
_BUILT_IN = {*IMPLICIT, _SUPERUSERS, _OWNER}
PERMISSIONS = {
    "read": 0x0001,
    "full_read": 0x2000,
    "write": 0x0002,
    "use": 0x0004,
    "administer": 0x0008,
    "create": 0x0100,
    "remove": 0x0200,
    "mount": 0x0400,
    "manage": 0x0800,
    "modify_children": 0x1000,
    "register_queue_consumer": 0x0010,
}
"""Names as attributes spell them, in the order in which lists show them, and numbers as RPC sends them."""
ADD = ("write", "modify_children")
"""What changes the children of a folder: one of them is enough."""
_ADMINISTERED = frozenset(("acl", "inherit_acl"))
EXPIRATION = ("expiration_time", "expiration_timeout")
_OF_BUNDLES = {
    "abc": "administer",
    "bundle_controller_target_config": "manage",
    "cell_balancer_config": "use",
    "folder_id": "administer",
    "tablet_balancer_config": "use",
}
"""Permissions that changes of a bundle's attributes need, where it is not `write`."""
_VITAL = "register_queue_consumer"
_READ = frozenset(("read", "full_read"))
"""Either is enough to read a table; the rows that entries with a condition hide need the second."""
_ALL = "object_and_descendants"
_MODES = (_ALL, "object_only", "descendants_only", "immediate_descendants_only")
_PREDICATE = "row_access_predicate"
_BY_ROW = (_PREDICATE, "inapplicable_row_access_predicate_mode")
_FIELDS = {"action", "subjects", "permissions", "inheritance_mode", "vital", *_BY_ROW}
_OBJECTS = ("account", "group", "tablet_cell", "tablet_cell_bundle", "user")
"""Types of objects that inherit nothing from the folder that shows them."""
_FOR_ALL = {"action": "allow", "subjects": [_EVERYONE], "permissions": ["read"]}


class Verdict(NamedTuple):
    """What access control says: `allow` or `deny`, the object whose list decided, and its entry's subject.

    `is_partial` is whether it allows to read the rows only that an entry with a condition names.
    """

    action: str
    object_id: str | None = None
    subject: str | None = None
    is_partial: bool = False


def parse(view: View, value: Any) -> list[dict[str, Any]]:
    """Return an access control list as it is kept and shown; refuse a wrong entry or subject."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise YtError("Error parsing ACL: expected a list of maps")
    return [_entry(view, entry) for entry in value]


def _entry(view: View, given: dict[str, Any]) -> dict[str, Any]:
    if not {"action", "subjects", "permissions"} <= given.keys():
        raise YtError(
            'Error parsing ACE: "action", "subject" and "permissions" fields are required'
        )
    action, mode = given["action"], given.get("inheritance_mode", _ALL)
    subjects, named = given["subjects"], given["permissions"]
    if action not in {"allow", "deny"} or mode not in _MODES:
        raise YtError(f'Error parsing ACE: "{action}", "{mode}" are no action and inheritance mode')
    if not isinstance(subjects, list) or not isinstance(named, list):
        raise YtError('Error parsing ACE: "subjects" and "permissions" are lists')
    for name in named:
        check_name(name)
    for name in subjects:
        if name not in _BUILT_IN and find_subject(view, name) is None:
            raise YtError(f'No such subject "{name}"')
    permissions = [name for name in PERMISSIONS if name in named]
    vital = given.get("vital")
    if _VITAL in permissions and vital is None:
        raise YtError(f'Permission "{_VITAL}" requires vitality to be specified')
    if vital is not None and permissions != [_VITAL]:
        raise YtError(
            f'ACE specifying vitality must contain a single "{_VITAL}" permission;'
            f' found "{" | ".join(permissions)}"'
        )
    entry = {
        "action": action,
        "subjects": list(subjects),
        "permissions": permissions,
        "inheritance_mode": mode,
    }
    entry |= _by_row(given, action, permissions)
    return entry if vital is None else {**entry, "vital": bool(vital)}


def _by_row(given: dict[str, Any], *granted: Any) -> dict[str, Any]:
    """Return the fields that make an entry one for some rows; refuse fields that are not known."""
    for name in given.keys() - _FIELDS:
        if given[name] is not None:
            raise YtError(
                f'Error parsing ACE: "{name}" is not supported by the embedded cluster; leave it out'
            )
    found = {name: given[name] for name in _BY_ROW if given.get(name) is not None}
    if found and granted != ("allow", ["read"]):
        raise YtError('Row-level ACE must contain a single "read" permission and allow it')
    return found


def check_name(name: Any) -> None:
    """Refuse what is no name of a permission."""
    if name not in PERMISSIONS:
        raise YtError(f'Error parsing EPermission value "{name}"')


def find_subject(view: View, name: Any) -> str | None:
    """Return the id of a user or a group."""
    if not isinstance(name, str):
        return None
    return view.find("users", name) or view.find("groups", name)


def members(view: View, group: str) -> list[str]:
    """Return the direct members of a group that exist."""
    if group == _USERS:
        return [name for name in view.children(view.find("users") or "") if name != GUEST]
    if group == _EVERYONE:
        return [GUEST, _USERS]
    group_id = view.find("groups", group)
    stored = view.attribute(group_id, "members") if group_id else None
    return [name for name in stored or () if find_subject(view, name) is not None]


def member_of(view: View, name: str, *, closure: bool = False) -> list[str]:
    """Return the groups that a user or group is in: directly, or through others too."""
    groups = list(view.children(view.find("groups") or ""))
    by_group = {group: members(view, group) for group in groups}
    found: list[str] = []
    waiting = [name]
    while waiting:
        current = waiting.pop()
        above = [group for group in groups if current in by_group[group] and group not in found]
        found += above
        if closure:
            waiting += above
    return sorted(found)


def is_superuser(view: View) -> bool:
    """Tell whether nothing is forbidden to the user of a view."""
    return view.user == ROOT or _SUPERUSERS in member_of(view.trunk, view.user, closure=True)


def check_user(view: View) -> None:
    """Refuse a user that does not exist or is banned, as proxies do: with HTTP 403, and no code of its own.

    See `TContext::TryParseUser` in `server/http_proxy/context.cpp` and `TUserBanCache::CheckUser` in
    `server/lib/security_server/user_access_validator.cpp`.
    """
    user, view = view.user, view.trunk
    user_id = view.find("users", user)
    if user_id is not None and not view.attribute(user_id, "banned"):
        return
    if user_id is None:
        missing = YtError(f'Node //sys/users has no child with key "{user}"', Code.RESOLVE)
        reason = YtError(f'No such user "{user}"', inner=[missing])
    else:
        reason = YtError(f'User "{user}" is banned on cluster "{CLUSTER_NAME}"')
    raise YtError("User validation failed", inner=[reason], http_status=HTTPStatus.FORBIDDEN)


def effective(view: View, node_id: str) -> list[dict[str, Any]]:
    """Return the entries that count for an object, its own ones first."""
    return [{**entry, "inheritance_mode": mode} for entry, _, mode in _entries(view, node_id)]


def _entries(view: View, node_id: str) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield the entries that count for an object, each with its holder and the mode it has here."""
    current, depth = node_id, 0
    while True:
        for entry in view.attribute(current, "acl") or ():
            mode = _inherited(entry.get("inheritance_mode", _ALL), depth)
            if mode is not None:
                yield entry, current, mode
        if view.attribute(current, "inherit_acl") is False:
            return
        place = None if view.node_type(current) in _OBJECTS else view.place(current)
        if place is None:
            if current != ROOT_ID:
                # Objects get it from their schema, and nodes without a parent by decree.
                yield _FOR_ALL, current, _ALL
            return
        current, depth = place[0], depth + 1


def _inherited(mode: str, depth: int) -> str | None:
    """Return the mode that an entry has for an object so far below, or None where it does not count."""
    if mode == _ALL:
        return _ALL
    if mode == "descendants_only":
        return _ALL if depth else None
    return "object_only" if depth == (mode == "immediate_descendants_only") else None


def check(
    view: View, node_id: str, user: str, permissions: Sequence[str], *, vital: bool = False
) -> Verdict:
    """Judge whether a user has one of the permissions; `vital` is for `register_queue_consumer`."""
    if user == ROOT:
        return Verdict("allow")
    trunk = view.trunk
    if trunk.attribute(trunk.find("users", user) or "", "banned"):
        return Verdict("deny")
    subjects = {user, *member_of(trunk, user, closure=True)}
    if _SUPERUSERS in subjects:
        return Verdict("allow")
    wanted = {*permissions, *(_READ if not _READ.isdisjoint(permissions) else ())}
    counting = [
        (entry, holder)
        for entry, holder, _ in _entries(view, node_id)
        if not wanted.isdisjoint(entry["permissions"]) and (entry.get("vital") or not vital)
    ]
    verdict = Verdict("deny", is_partial=any(_PREDICATE in entry for entry, _ in counting))
    for entry, holder in counting:
        for named in entry["subjects"] if _PREDICATE not in entry else ():
            subject = view.attribute(node_id, "owner") if named == _OWNER else named
            if subject in subjects:
                is_partial = verdict.is_partial and "full_read" not in entry["permissions"]
                verdict = Verdict(entry["action"], holder, subject, is_partial)
                if verdict.action == "deny":
                    return verdict
    return Verdict("deny") if verdict.is_partial and "full_read" in permissions else verdict


def may(view: View, node_id: str, permission: str) -> bool:
    """Tell whether the user of a view has a permission on an object."""
    return check(view, node_id, view.user, [permission]).action == "allow"


def require(
    view: View,
    node_id: str,
    *permissions: str,
    vital: bool = False,
    by_proxy: bool = False,
    rows: bool = False,
) -> None:
    """Refuse the user of a view who has none of the permissions on an object; `root` has all.

    Args:
        *permissions: one of them is enough.
        vital: as for `check`.
        by_proxy: whether a proxy asks, as for rows of dynamic tables: then the error names no object.
        rows: whether all rows are to be read. Proxies ask for `read` for nothing else.

    Raises:
        YtError: 901, with the text and the attributes of a server.
    """
    user = view.user
    verdict = check(view, node_id, user, permissions, vital=vital)
    if verdict.is_partial and verdict.action == "allow" and (rows or by_proxy):
        raise YtError(
            f'Access denied for user "{user}": row-level ACL is present, but is not supported by this'
            " method yet",
            Code.AUTHORIZATION,
            {"user": user, "permission": "read"},
        )
    if verdict.action == "allow":
        return
    shown = " | ".join(permissions)
    target = "" if by_proxy else f" for {describe(view, node_id)}"
    attributes: dict[str, Any] = {"user": user, "permission": list(permissions)}
    if verdict.object_id is None:
        reason = "not allowed by any matching ACE"
    else:
        where = describe(view, verdict.object_id)
        reason = f'denied for "{verdict.subject}" by ACE at {where}'
        attributes["denied_by"] = verdict.object_id
        attributes["denied_for"] = find_subject(view.trunk, verdict.subject) or ""
    if not by_proxy:
        attributes |= {"object_id": node_id, "object_type": view.node_type(node_id)}
        if view.node_type(node_id) not in _OBJECTS:
            attributes["path"] = view.path(node_id)
    raise YtError(
        f'Access denied for user "{user}": "{shown}" permission{target} is {reason}',
        Code.AUTHORIZATION,
        attributes,
    )


def require_below(view: View, node_id: str, permission: str) -> None:
    """Ask for a permission on a node and on everything below it."""
    for each in view.below(node_id) if view.user != ROOT else ():
        require(view, each, permission)


def require_to_add(view: View, parent_id: str, given: Mapping[str, Any]) -> None:
    """Ask for what a new node with such attributes needs, of its folder and of who pays for it."""
    if view.user == ROOT:
        return
    require(view, parent_id, *ADD)
    if not _ADMINISTERED.isdisjoint(given):
        require(view, parent_id, "administer")
    _require_account(view, given.get("account", quotas.account_of(view, parent_id)))


def _require_account(view: View, account: Any) -> None:
    """Ask for the right to use an account; a bundle is used by mounting."""
    object_id = view.find("accounts", str(account))
    if object_id is not None:
        require(view, object_id, "use")


def require_to_change(view: View, node_id: str, name: str, *value: Any) -> None:
    """Ask for what a change of an attribute needs; without a value, its removal."""
    if view.user == ROOT:
        return
    special = _OF_BUNDLES if view.node_type(node_id) == quotas.BUNDLE else {}
    default = "administer" if name in _ADMINISTERED else "write"
    require(view, node_id, special.get(name, default))
    if value and name in EXPIRATION:
        require_below(view, node_id, "remove")
    if value and name == "account":
        _require_account(view, *value)
    if name == "owner" and value != (view.user,) and not is_superuser(view):
        raise YtError("Access denied: can only set owner to self", Code.AUTHORIZATION)


def describe(view: View, node_id: str) -> str:
    """Return what errors call an object."""
    kind, place = view.node_type(node_id), view.place(node_id)
    if kind not in _OBJECTS:
        return f"node {view.path(node_id)}"
    return f'{kind.replace("_", " ")} "{place[1] if place else node_id}"'
