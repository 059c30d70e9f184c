"""Options of a mount: what `@mount_config` holds, and the attributes of the same names.

`@min_data_ttl` and `@mount_config/min_data_ttl` are one, as in `TMountConfigStorage`. Those of `ACTING`
change what a table does here, from the next mount or remount on; the others are about the machinery of
tablet nodes, and are kept without effect.
"""

from __future__ import annotations

from typing import Any

from yt.yson import YsonEntity

from yt_exactly_once.local.errors import YtError

_NAMES = """
    always_flush_to_eden auto_compaction_period auto_compaction_period_splay_ratio
    backing_store_retention_time compaction_data_size_base compaction_data_size_ratio compaction_throttler
    critical_overlapping_store_count desired_partition_data_size dynamic_store_auto_flush_period
    dynamic_store_flush_period_splay dynamic_store_overflow_threshold enable_compaction_and_partitioning
    enable_data_node_lookup enable_discarding_expired_partitions enable_hash_chunk_index_for_lookup
    enable_hunk_columnar_profiling enable_key_filter_for_lookup enable_lookup_cache_by_default
    enable_lookup_hash_table enable_lsm_verbose_logging enable_narrow_chunk_view_compaction
    enable_new_scan_reader_for_lookup enable_new_scan_reader_for_select
    enable_partition_split_while_eden_partitioning enable_partitioning enable_profiling
    enable_replication_logging enable_replication_progress_advance_to_barrier enable_segment_meta_in_blocks
    enable_store_flush enable_store_rotation enable_structured_logger flush_throttler
    hunk_compaction_size_base hunk_compaction_size_ratio ignore_major_timestamp lookup_cache_rows_per_tablet
    lookup_cache_rows_ratio lookup_rpc_multiplexing_parallelism max_chunk_view_size_ratio
    max_compaction_store_count max_data_ttl max_data_versions max_data_weight_per_replication_commit
    max_dynamic_store_pool_size max_dynamic_store_row_count max_dynamic_store_row_data_weight
    max_dynamic_store_timestamp_count max_dynamic_store_value_count max_eden_stores_per_tablet
    max_hunk_compaction_chunk_count max_hunk_compaction_garbage_ratio max_hunk_compaction_size
    max_ordered_tablet_data_weight max_overlapping_store_count max_partition_count max_partition_data_size
    max_partitioning_data_size max_partitioning_store_count max_read_fan_in max_rows_per_replication_commit
    max_stores_per_tablet max_timestamps_per_replication_commit max_unversioned_block_size
    merge_deletions_on_flush merge_rows_on_flush min_compaction_store_count min_data_ttl min_data_versions
    min_hunk_compaction_chunk_count min_partition_data_size min_partitioning_data_size
    min_partitioning_store_count min_replication_log_ttl overlapping_store_immediate_split_threshold
    partitioning_throttler periodic_compaction_mode precache_chunk_replicas_on_mount preserve_tablet_index
    prioritize_eden_forced_compaction register_chunk_replicas_on_stores_update
    relative_replication_throttler replication_progress_update_tick_period replication_throttler
    replication_tick_period row_count_to_keep row_digest_compaction samples_per_partition
    simulated_store_preload_delay simulated_tablet_snapshot_delay single_column_group_by_default throttlers
"""
NAMES = frozenset(_NAMES.split())
ACTING: dict[str, Any] = {
    "min_data_versions": 1,
    "max_data_versions": 1,
    "min_data_ttl": 1_800_000,
    "max_data_ttl": 1_800_000,
    "row_count_to_keep": 0,
    "merge_rows_on_flush": False,
    "max_ordered_tablet_data_weight": None,
    "dynamic_store_auto_flush_period": 900_000,
    "backing_store_retention_time": 60_000,
}
"""The options that act, with their defaults; durations are in milliseconds."""
_OPTIONAL = frozenset(("max_ordered_tablet_data_weight", "dynamic_store_auto_flush_period"))
"""Those that may be none."""

MOUNT_CONFIG = "mount_config"
_ORDERED_PAIRS = (
    ("min_compaction_store_count", 3, "max_compaction_store_count", 5),
    ("min_partitioning_store_count", 1, "max_partitioning_store_count", 5),
    ("min_partitioning_data_size", 64 << 20, "max_partitioning_data_size", 1 << 30),
    ("min_hunk_compaction_chunk_count", 2, "max_hunk_compaction_chunk_count", 5),
    ("max_dynamic_store_row_count", 10**6, "max_dynamic_store_value_count", 10**9),
)
"""Options of which the first must not be greater than the second, each with its default."""


def fold(given: dict[str, Any]) -> dict[str, Any]:
    """Return attributes of a new table with every option of a mount inside `mount_config`."""
    beside = {name: value for name, value in given.items() if name in NAMES}
    if not beside:
        return given
    rest = {name: value for name, value in given.items() if name not in NAMES}
    return {**rest, MOUNT_CONFIG: {**beside, **(given.get(MOUNT_CONFIG) or {})}}


def check_values(config: Any) -> None:
    """Refuse, by its name, an option that acts and has a value that it cannot have."""
    if not isinstance(config, dict):
        raise YtError(f'Error parsing attribute "{MOUNT_CONFIG}": expected a map')
    for name in config.keys() & ACTING.keys():
        value, wanted = config[name], bool if ACTING[name] is False else int
        if value == YsonEntity() and name in _OPTIONAL:
            continue
        # The client has a type of its own for booleans.
        fits = isinstance(value, int) and (type(value) is int) == (wanted is int)
        if not fits or value < 0:
            raise YtError(
                f'Error parsing attribute "{MOUNT_CONFIG}/{name}": expected'
                f" {'a nonnegative integer' if wanted is int else 'a boolean'}, got {value}"
            )


def effective(config: dict[str, Any]) -> dict[str, Any]:
    """Return the options that act, and all that were given; refuse those that contradict each other."""
    for low, low_default, high, high_default in _ORDERED_PAIRS:
        if config.get(low, low_default) > config.get(high, high_default):
            raise YtError(f'"{low}" must be less than or equal to "{high}"')
    return {**ACTING, **config}
