"""Version 3 of the API: the same commands, some under old names, answering without wrapping.

The Python client speaks version 4. The official JavaScript client uses version 3 for transactions and
`read_table`, and real proxies serve it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from yt_exactly_once.local.commands.registry import REGISTRY, Command, Context

_RENAMED = {f"{verb}_transaction": f"{verb}_tx" for verb in ("start", "ping", "commit", "abort")}
_UNWRAPPED = {
    **dict.fromkeys(("get", "list", "exists"), "value"),
    **dict.fromkeys(("create", "copy", "move", "link"), "node_id"),
    "lock": "lock_id",
    "start_transaction": "transaction_id",
    "generate_timestamp": "timestamp",
    "execute_batch": "results",
    "get_version": "version",
    "parse_ypath": "path",
}
_WITHOUT_ANSWER = (
    "ping_transaction commit_transaction abort_transaction remove set unlock concatenate write_file"
    " write_table insert_rows delete_rows lock_rows trim_rows mount_table unmount_table"
    " remount_table freeze_table unfreeze_table reshard_table alter_table"
)
_ONLY_IN_4 = frozenset(("multiset_attributes", "get_tablet_infos", "get_table_pivot_keys"))


def commands() -> dict[str, Command]:
    """Return the commands of version 3 by name."""
    found = {}
    for name, command in REGISTRY.items():
        if name not in _ONLY_IN_4:
            old = _RENAMED.get(name, name)
            found[old] = _downgraded(replace(command, name=old), name)
    return found


def _downgraded(command: Command, name: str) -> Command:
    if name in _WITHOUT_ANSWER.split():
        return replace(command, output_type="null")
    if name not in _UNWRAPPED:
        return command
    key = _UNWRAPPED[name]

    def handler(context: Context) -> Any:
        answer = command.handler(context)
        if name == "create" and "object_id" in answer:
            return answer["object_id"]
        return answer[key] if isinstance(answer, dict) and key in answer else answer

    return replace(command, handler=handler)
