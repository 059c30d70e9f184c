"""Mount states of tablets and the settings that take effect with them.

Owns which transitions are allowed. Transitions happen at once: there is no moment in which a tablet is
mounting or freezing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any, Literal

from yt_exactly_once.local import arguments
from yt_exactly_once.local.cypress import mount_options, quotas
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.store import next_timestamp
from yt_exactly_once.local.tables.layout import TableLayout, Tablet
from yt_exactly_once.local.tablets import appends, counters, flushed, retention
from yt_exactly_once.local.tablets.catalog import load_layout, save_layout

Action = Literal["mount", "mount_frozen", "unmount", "freeze", "unfreeze"]

DEFAULT_MAX_ROWS = 100_000
HARD_MAX_ROWS = 2_000_000

_ALLOWED: dict[str, tuple[str, ...]] = {
    "mount": ("unmounted", "mounted"),
    "mount_frozen": ("unmounted", "frozen"),
    "unmount": ("mounted", "frozen", "unmounted"),
    "freeze": ("mounted", "frozen"),
    "unfreeze": ("frozen", "mounted"),
}


def check_transition(
    layout: TableLayout, action: Action, indexes: Sequence[int], *, force: bool
) -> None:
    """Refuse what the current states, or the columns, do not allow."""
    for column in layout.columns if action.startswith("mount") else ():
        if column.wire_type in ("null", "void"):
            raise YtError(
                f'Cannot mount table since it has column "{column.name}" with value type "null"'
            )
    for index in indexes:
        tablet = layout.tablets[index]
        if not force and tablet.state not in _ALLOWED[action]:
            verb = action.removesuffix("_frozen")
            raise YtError(
                f'Cannot {verb} tablet {tablet.tablet_id} in "{tablet.state}" state',
                tablet_id=tablet.tablet_id,
                state=tablet.state,
            )


def change_state(
    connection: Connection,
    layout: TableLayout,
    state: str,
    attributes: dict[str, Any],
    indexes: Sequence[int] | None = None,
) -> None:
    """Bring tablets to a state; a mount replaces the mount revision and takes the settings.

    Tablets that stop taking writes flush them into a chunk; those that start drop trimmed chunks.
    """
    revision = next_timestamp(connection)
    flushed.flush_table(connection, layout)
    if state != "mounted":
        appends.apply_pending(connection, "node_id = ?", layout.node_id)
    compacted = False
    for index in range(layout.tablet_count) if indexes is None else indexes:
        tablet = layout.tablets[index]
        if tablet.state == state:
            continue
        mounted_anew = tablet.state == "unmounted"
        if mounted_anew:
            _check_chunks(connection, tablet)
        if mounted_anew or state == "frozen":
            # The tablet knows its rows from chunks now, which hold no locks.
            written = counters.of(connection, layout, index, "last_write_ts")
            counters.put(connection, layout, index, chunk_ts=written, flushed_ts=revision)
        if tablet.state == "mounted":
            flushed.flush(connection, layout, tablet)
            compacted |= not layout.sorted or bool(layout.options["merge_rows_on_flush"])
        elif state == "mounted":
            compacted |= bool(flushed.chunks(connection, tablet.tablet_id))
            if not layout.sorted:
                trimmed = counters.of(connection, layout, index, "trimmed_rows")
                flushed.drop_trimmed(connection, tablet.tablet_id, trimmed)
        mounted = revision if mounted_anew else tablet.mount_revision
        counters.put(connection, layout, index, state=state, mount_revision=mounted)
    remounted = remount(connection, layout, attributes)
    config = attributes.get(mount_options.MOUNT_CONFIG) or {}
    if compacted and config.keys() & mount_options.ACTING.keys():
        retention.compact(connection, remounted, revision)


def _check_chunks(connection: Connection, tablet: Tablet) -> None:
    """Refuse to mount a tablet that has a chunk twice, as a concatenation may leave it."""
    listed = Counter(chunk.chunk_id for chunk in flushed.chunks(connection, tablet.tablet_id))
    for chunk_id, count in listed.most_common(1):
        if count > 1:
            raise YtError(
                f"Cannot mount table: tablet {tablet.tablet_id} contains duplicate store {chunk_id}"
                ' of type "chunk"'
            )


def remount(connection: Connection, layout: TableLayout, attributes: dict[str, Any]) -> TableLayout:
    """Take the settings of the node over into the layout; return the new one.

    Raises:
        YtError: settings contradict each other.
    """
    options = options_of(attributes) | quotas.payers(View(connection), layout.node_id)
    save_layout(connection, layout.node_id, layout.schema, layout.sql_names, options)
    mounted = load_layout(connection, layout.node_id, layout.path)
    if mounted.options[flushed.PERIOD] != layout.options[flushed.PERIOD]:
        flushed.plan(connection, mounted)
    return mounted


def options_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """Take from the attributes of a node what acts on rows."""
    config = attributes.get(mount_options.MOUNT_CONFIG) or {}
    effective = mount_options.effective(config)
    if effective.get("enable_lookup_hash_table") and (
        attributes.get("in_memory_mode") != "uncompressed"
    ):
        raise YtError(
            '"enable_lookup_hash_table" can only be true if "in_memory_mode" is "uncompressed"'
        )
    name = "max_rows_per_transaction"
    configured = arguments.integer(config, name, DEFAULT_MAX_ROWS)
    return {
        name: min(arguments.integer(attributes, name, configured), HARD_MAX_ROWS),
        "atomicity": str(attributes.get("atomicity", "full")),
        **{option: effective[option] for option in mount_options.ACTING},
        # Rows that nobody asked to keep longer are kept as long as conflicts are checked.
        "min_data_ttl": config.get("min_data_ttl", retention.KEPT_SECONDS * 1000),
    }
