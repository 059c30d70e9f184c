"""Methods of the tree."""

from __future__ import annotations

from functools import partial
from typing import Any

from yt_exactly_once.local.cypress.ids import NULL, TYPES
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.rpc import options
from yt_exactly_once.local.rpc.calls import Call, method, plain

_TYPE_NAMES = {
    **{number: name for name, number in TYPES.items()},
    425: "replicated_table",
    424: "journal",
    1700: "queue_consumer",
    1701: "queue_producer",
}
_ACTIONS = {"allow": 1, "deny": 2}


plain("ExistsNode", "exists", answer=lambda found: {"exists": found["value"]})
plain("GetNode", "get")
plain("ListNode", "list")


@method("SetNode", "set")
def set_node(call: Call) -> None:
    """Write a value."""
    call.context.read_value = lambda: call.context.parameters["value"]
    call.execute()


@method("MultisetAttributesNode", "multiset_attributes")
def multiset_attributes_node(call: Call) -> None:
    """Write several attributes."""
    parts = call.context.parameters["subrequests"]
    call.context.read_value = lambda: {part["attribute"]: part["value"] for part in parts}
    call.execute()


def _creation(request: Any) -> dict[str, Any]:
    name = _TYPE_NAMES.get(request.type)
    if name is None:
        raise YtError(f"Objects of type {request.type} are not supported by the embedded cluster")
    return options.parameters(request) | {"type": name}


_transfer = partial(options.parameters, src_path="source_path", dst_path="destination_path")
_concatenation = partial(options.parameters, src_paths="source_paths", dst_path="destination_path")
_linking = partial(options.parameters, src_path="target_path", dst_path="link_path")

plain("CreateNode", "create", _creation)
plain("CreateObject", "create", _creation)
plain("CopyNode", "copy", _transfer)
plain("MoveNode", "move", _transfer)
plain("LinkNode", "link", _linking)
plain("RemoveNode", "remove")
plain("ConcatenateNodes", "concatenate", _concatenation)
plain("LockNode", "lock")
plain("UnlockNode", "unlock")
plain("AddMember", "add_member")
plain("RemoveMember", "remove_member")
plain("CheckClusterLiveness", "check_cluster_liveness")


def _permission(found: dict[str, Any]) -> dict[str, Any]:
    action = _ACTIONS[found["action"]]
    return {"result": {"object_id": NULL, "subject_id": NULL, **found, "action": action}}


plain("CheckPermission", "check_permission", answer=_permission)
