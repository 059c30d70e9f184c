"""Settings of a dynamic table: which values they take, and when they may change.

Rules follow the master's table node: what tablets are built on changes only while every tablet is
unmounted, and never inside a transaction. What a setting does is not decided here.
"""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local import arguments
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables.layout import TableLayout

_STORAGE = "Cannot change storage parameters"
_NEEDS_UNMOUNTED = {
    "atomicity": "Cannot change table atomicity mode",
    "commit_ordering": "Cannot change table commit ordering mode",
    "enable_dynamic_store_read": "Cannot change dynamic stores readability",
    "in_memory_mode": "Cannot change table memory mode",
    "media": _STORAGE,
    "primary_medium": _STORAGE,
    "replication_factor": _STORAGE,
    "vital": _STORAGE,
    "account": "Cannot change account",
}
"""What the refusal says, by the setting that is fixed while a tablet is mounted."""

_NOT_IN_TRANSACTIONS = _NEEDS_UNMOUNTED.keys() | frozenset(
    ("queue_agent_stage", "tablet_balancer_config", "tablet_cell_bundle", "treat_as_queue_consumer")
)
_COMPUTED = """
    schema schema_mode dynamic sorted sorted_by key_columns unique_keys tablets tablet_count
    tablet_state actual_tablet_state expected_tablet_state pivot_keys row_count queue_status
    queue_partitions queue_consumer_status queue_consumer_partitions tablet_statistics
    tablet_count_by_state tablet_count_by_expected_state preload_state effective_mount_config
    unmerged_row_count last_commit_timestamp retained_timestamp unflushed_timestamp chunk_count
    chunk_ids chunk_row_count
"""
_READ_ONLY = frozenset(_COMPUTED.split())


def check_value(name: str, value: Any, *, is_sorted: bool) -> None:
    """Refuse a value that a setting cannot have, at creation as well as later."""
    if name == "commit_ordering" and is_sorted:
        # Commits of sorted tables are ordered by their rows' locks.
        raise _cannot_set(name)
    if name == "max_rows_per_transaction" and (not isinstance(value, int) or value < 1):
        raise YtError('Error parsing attribute "max_rows_per_transaction": expected a positive int')
    if name == "auto_trim_config":
        _check_auto_trim(value)


def check_change(layout: TableLayout, name: str, *, in_transaction: bool) -> None:
    """Refuse to change or remove a setting that is fixed now.

    Raises:
        YtError: 1706 when a tablet is mounted or frozen; code 1 for computed attributes and in
            master transactions.
    """
    if name in _READ_ONLY:
        raise _cannot_set(name)
    if in_transaction and name in _NOT_IN_TRANSACTIONS:
        raise YtError(f'Operation cannot be performed in transaction: set "{name}" outside of it')
    if name in _NEEDS_UNMOUNTED and not (name == "commit_ordering" and layout.sorted):
        check_unmounted(layout, _NEEDS_UNMOUNTED[name])


def check_unmounted(layout: TableLayout, action: str) -> None:
    """Refuse what needs every tablet of a table to be unmounted."""
    if layout.state != "unmounted":
        raise YtError(
            f"{action} since not all tablets are unmounted",
            Code.INVALID_TABLET_STATE,
            {"actual_tablet_state": layout.state, "expected_tablet_state": layout.state},
        )


def _cannot_set(name: str) -> YtError:
    return YtError(f'Builtin attribute "{name}" cannot be set')


def _check_auto_trim(value: Any) -> None:
    if not isinstance(value, dict):
        raise YtError('Error parsing attribute "auto_trim_config": expected a map')
    lifetime = arguments.integer(value, "retained_lifetime_duration", 0)
    if lifetime % 1000:
        raise YtError(
            'The value of "retained_lifetime_duration" must be a multiple of 1000 (one second)'
        )
    if arguments.integer(value, "retained_rows", 0) < 0:
        raise YtError('The value of "retained_rows" must not be negative')
