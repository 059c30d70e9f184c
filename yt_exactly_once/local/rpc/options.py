"""The groups of options that many requests share, as parameters of commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from yt_exactly_once.local.formats.structured import load_yson
from yt_exactly_once.local.rpc import identifiers, paths
from yt_exactly_once.local.rpc.message_types import text

_TRACKING = "suppressable_access_tracking_options"
_GROUPS = ("transactional_options", "prerequisite_options", "mutating_options", _TRACKING)
_MICROSECONDS = 1000


def common(request: Any) -> dict[str, Any]:
    """Return the parameters of the option groups that a request has."""
    found: dict[str, Any] = {}
    present = {group for group in _GROUPS if _has(request, group)}
    if "transactional_options" in present:
        options = request.transactional_options
        transaction_id = identifiers.given(options, "transaction_id")
        if transaction_id is not None:
            found["transaction_id"] = transaction_id
            found["ping_ancestor_transactions"] = options.ping_ancestors
    if "prerequisite_options" in present:
        found |= _prerequisites(request.prerequisite_options)
    if "mutating_options" in present:
        mutation_id = identifiers.given(request.mutating_options, "mutation_id")
        if mutation_id is not None:
            found |= {"mutation_id": mutation_id, "retry": request.mutating_options.retry}
    if _TRACKING in present:
        names = (
            "suppress_access_tracking",
            "suppress_modification_tracking",
            "suppress_expiration_timeout_renewal",
        )
        found |= scalars(getattr(request, _TRACKING), names)
    return found


def at_path(request: Any, *fields: str) -> dict[str, Any]:
    """Return the common parameters, the path, and the scalar fields that are set.

    Args:
        request: the message; its path field is `path`.
        fields: names that the command's parameters have too.
    """
    return {"path": paths.load(request.path), **common(request), **scalars(request, fields)}


def fields(*names: str) -> Callable[[Any], dict[str, Any]]:
    """Return what reads the common parameters, the path and some fields; see `at_path`."""
    return lambda request: at_path(request, *names)


def scalars(request: Any, fields: Iterable[str]) -> dict[str, Any]:
    """Return the scalar fields that are set, or that have a default; text is decoded."""
    found = {}
    for name in fields:
        described = request.DESCRIPTOR.fields_by_name[name]
        if request.HasField(name) or described.has_default_value:
            value = getattr(request, name)
            found[name] = text(value, name) if isinstance(value, bytes) else value
    return found


def attributes(dictionary: Any) -> dict[str, Any]:
    """Return what a dictionary message holds."""
    return {
        text(item.key, "attribute"): load_yson(item.value, "attribute")
        for item in dictionary.attributes
    }


def milliseconds(microseconds: int) -> int:
    """Return a duration as commands take it; less than one is one, since zero means something else."""
    return max(microseconds // _MICROSECONDS, 1) if microseconds else 0


def _has(request: Any, group: str) -> bool:
    return group in request.DESCRIPTOR.fields_by_name and request.HasField(group)


def _prerequisites(options: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if options.transactions:
        found["prerequisite_transaction_ids"] = [
            identifiers.required(item, "transaction_id") for item in options.transactions
        ]
    if options.revisions:
        found["prerequisite_revisions"] = [
            {"path": paths.load(item.path), "revision": item.revision} for item in options.revisions
        ]
    return found
