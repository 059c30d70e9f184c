"""Methods of the tree."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.cypress.ids import TYPES
from yt_exactly_once.local.cypress.permissions import PERMISSIONS
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.structured import dump_yson, load_yson
from yt_exactly_once.local.rpc import identifiers, options, paths
from yt_exactly_once.local.rpc.calls import Call, method, only_execute
from yt_exactly_once.local.rpc.message_types import text

_TYPE_NAMES = {
    **{number: name for name, number in TYPES.items()},
    425: "replicated_table",
    424: "journal",
    1700: "queue_consumer",
    1701: "queue_producer",
}
_LOCK_MODES = {0: "none", 1: "snapshot", 2: "shared", 3: "exclusive"}
_PERMISSIONS = {number: name for name, number in PERMISSIONS.items()}
_ACTIONS = {"allow": 1, "deny": 2}
_NULL_ID = "0-0-0-0"


def _reading(request: Any) -> dict[str, Any]:
    parameters = options.at_path(request, "max_size")
    chosen = request.attributes if request.HasField("attributes") else request.legacy_attributes
    wanted = [*chosen.keys, *getattr(chosen, "paths", ())]
    if wanted:
        parameters["attributes"] = [text(name, "attributes") for name in wanted]
    return parameters


@method("ExistsNode", "exists", options.at_path)
def exists_node(call: Call) -> None:
    """Tell whether a path leads to something."""
    call.response.exists = bool(call.execute()["value"])


@method("ListNode", "list", _reading)
@method("GetNode", "get", _reading)
def read_node(call: Call) -> None:
    """Read a node, an attribute, a part of a document, or the names of children."""
    call.response.value = dump_yson(call.execute()["value"])


@method("SetNode", "set", options.fields("recursive", "force"))
def set_node(call: Call) -> None:
    """Write a value."""
    raw = call.request.value
    call.context.read_value = lambda: load_yson(raw, "value")
    call.execute()


@method("MultisetAttributesNode", "multiset_attributes", options.at_path)
def multiset_attributes_node(call: Call) -> None:
    """Write several attributes."""
    given = {
        text(part.attribute, "attribute"): load_yson(part.value, "value")
        for part in call.request.subrequests
    }
    call.context.read_value = lambda: given
    call.execute()


def _creation(request: Any) -> dict[str, Any]:
    flags = ("recursive", "force", "ignore_existing", "ignore_type_mismatch", "lock_existing")
    return options.at_path(request, *flags) | _object(request)


def _object(request: Any) -> dict[str, Any]:
    name = _TYPE_NAMES.get(request.type)
    if name is None:
        raise YtError(f"Objects of type {request.type} are not supported by the embedded cluster")
    return {"type": name, "attributes": options.attributes(request.attributes)}


def _object_creation(request: Any) -> dict[str, Any]:
    return (
        options.common(request) | options.scalars(request, ["ignore_existing"]) | _object(request)
    )


@method("CreateObject", "create", _object_creation)
def create_object(call: Call) -> None:
    """Create an object that has no path."""
    identifiers.fill(call.response.object_id, call.execute()["object_id"])


method("RemoveNode", "remove", options.fields("recursive", "force"))(only_execute)


def _locking(request: Any) -> dict[str, Any]:
    mode = _LOCK_MODES.get(request.mode)
    if mode is None:
        raise YtError(f"Unknown lock mode {request.mode}")
    wanted = ("waitable", "child_key", "attribute_key")
    return options.at_path(request, *wanted) | {"mode": mode}


@method("LockNode", "lock", _locking)
def lock_node(call: Call) -> None:
    """Lock a node in a transaction."""
    answer = call.execute()
    identifiers.fill(call.response.node_id, answer["node_id"])
    identifiers.fill(call.response.lock_id, answer["lock_id"])
    call.response.revision = int(answer["revision"])


method("UnlockNode", "unlock", options.at_path)(only_execute)


def _transfer(request: Any) -> dict[str, Any]:
    flags = [
        name
        for name in request.DESCRIPTOR.fields_by_name
        if name
        in {"recursive", "force", "ignore_existing", "lock_existing", "pessimistic_quota_check"}
        or name.startswith("preserve_")
    ]
    return {
        "source_path": paths.load(request.src_path, "source_path"),
        "destination_path": paths.load(request.dst_path, "destination_path"),
        **options.common(request),
        **options.scalars(request, flags),
    }


def _linking(request: Any) -> dict[str, Any]:
    return {
        "target_path": paths.load(request.src_path, "target_path"),
        "link_path": paths.load(request.dst_path, "link_path"),
        **options.common(request),
        **options.scalars(request, ("recursive", "force", "ignore_existing", "lock_existing")),
    }


@method("CreateNode", "create", _creation)
@method("MoveNode", "move", _transfer)
@method("CopyNode", "copy", _transfer)
@method("LinkNode", "link", _linking)
def make_node(call: Call) -> None:
    """Create, copy, move or link a node, and answer with its id."""
    identifiers.fill(call.response.node_id, call.execute()["node_id"])


def _concatenation(request: Any) -> dict[str, Any]:
    return {
        "source_paths": [paths.load(path, "source_paths") for path in request.src_paths],
        "destination_path": paths.load(request.dst_path, "destination_path"),
        **options.common(request),
    }


method("ConcatenateNodes", "concatenate", _concatenation)(only_execute)


def _member(request: Any) -> dict[str, Any]:
    return options.common(request) | options.scalars(request, ("group", "member"))


method("AddMember", "add_member", _member)(only_execute)
method("RemoveMember", "remove_member", _member)(only_execute)


def _permission(request: Any) -> dict[str, Any]:
    named = _PERMISSIONS.get(request.permission, str(request.permission))
    return options.at_path(request, "user", "vital") | {"permission": named}


@method("CheckPermission", "check_permission", _permission)
def check_permission(call: Call) -> None:
    """Check a permission of a user on an existing path."""
    answer = call.execute()
    result = call.response.result
    result.action = _ACTIONS[answer["action"]]
    identifiers.fill(result.object_id, answer.get("object_id") or _NULL_ID)
    identifiers.fill(result.subject_id, answer.get("subject_id") or _NULL_ID)
    for name in ("object_name", "subject_name"):
        if answer.get(name):
            setattr(result, name, answer[name].encode())


method("CheckClusterLiveness", "check_cluster_liveness", lambda _: {})(only_execute)
