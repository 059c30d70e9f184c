"""What a request may carry that a server knows of and this cluster does not do: refused, or without effect.

A parameter or an attribute that is on neither list does what it does on a server, or no server knows it.
`docs/reference/local-commands.md` shows both lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yt_exactly_once.local.errors import Code, YtError


def by_name(by_reason: Mapping[str, str]) -> dict[str, str]:
    """Return the reason by name of what is refused or without effect for it."""
    return {name: reason for reason, names in by_reason.items() for name in names.split()}


REFUSED_PARAMETERS: dict[str, dict[str, str]] = {
    "alter_table": {
        "replication_progress": "there is no replication",
        "schema_id": "give the schema itself",
        "schema_modification": "there is none but the schema itself",
        "upstream_replica_id": "there is no replication",
    },
    "concatenate": {"uniqualize_chunks": "chunks may come twice"},
    "get": {"node_count_limit": "use max_size", "result_size_limit": "use max_size"},
    "list": {"node_count_limit": "use max_size", "result_size_limit": "use max_size"},
    "mount_table": {"target_cell_ids": "there is one cell; use cell_id"},
    "partition_tables": {
        "enable_cookies": "read the ranges of a partition with read_table",
        "enable_key_guarantee": "a key may come in several partitions",
    },
    "read_file": {"etag": "send it as the header If-None-Match"},
    "read_table": {"start_row_index_only": "the answer has the rows too"},
    "select_rows": {
        "placeholder_values": "write the values into the query",
        "use_canonical_null_relations": "say is_null where null is not to be compared",
    },
    "write_file": {"compute_md5": "hash the bytes before they are sent"},
}
"""By command, what is refused when it is given and not false or empty, with the remedy or the reason."""

REFUSED_PATHS = {
    "chunk_sort_columns": "say sorted_by, or create the table with a schema",
    "chunk_unique_keys": "create the table with a schema with unique keys",
    "output_timestamp": "rows of static tables have no timestamps",
    "schema_modification": "there is none but the schema itself",
    "versioned_read_options": "rows of static tables have no timestamps",
}
"""Attributes of a path to write to that are refused, and why."""

INERT_PARAMETERS = {
    "address_type": "proxies have one address",
    "allow_join_without_index": "a query with a join is refused",
    "allow_missing_key_columns": "a key column that is not given is null in any case",
    "cached_sync_replicas_timeout": "there are no replicas",
    "data_weight_per_row_hint": "it only saves a server memory",
    "enable_code_cache": "queries are not compiled",
    "enable_cross_cell_copying": "there is one master cell",
    "enable_partial_result": "no key is ever unavailable",
    "execution_pool": "nobody competes for processors",
    "file_reader": "how a file is read does not change it",
    "file_writer": "how a file is written does not change it",
    "ignore_balancers": "there are no balancers",
    "max_row_buffer_size": "how rows are sent does not change them",
    "network_name": "there is one network",
    "omit_inaccessible_columns": "every column is accessible",
    "read_from": "every cell has one peer, its leader",
    "replica_consistency": "there are no replicas",
    "require_sync_replica": "there are no replicas",
    "sequence_number": "rows are buffered in the order in which they come",
    "slicing_accuracy": "tablets are cut by rows, without an error",
    "start_cypress_transaction": "there is one kind of master transaction",
    "sticky": "every proxy knows master transactions, and tablet transactions are always sticky",
    "table_reader": "how rows are read does not change them",
    "table_writer": "how rows are written does not change them",
    "unordered": "rows come in order",
    "use_lookup_cache": "there is no cache",
    "workload_descriptor": "nobody competes for processors",
}
"""Parameters that are taken without effect, and why that changes no result."""

INERT_FIELDS = {
    "arrow_fallback_rowset_format": "there is one format",
    "auto_abort": "the client aborts",
    "check_secondary_master_cells": "there is one master cell",
    "check_tablet_cell_bundle": "cells are always healthy",
    "columns": "columns have no permissions of their own",
    "config": "how a table or a file is read or written does not change it",
    "fetcher": "chunks are not fetched",
    "master_read_options": "there is one master, and nothing is cached",
    "max_subqueries": "queries run in one place",
    "memory_limit_per_node": "there are no nodes",
    "multiplexing_band": "one connection carries everything",
    "new_range_inference": "it changes how ranges are found, not what is read",
    "options": "no node takes any",
    "ping_ancestors": "the client pings",
    "sync": "objects are created at once",
    "tablet_read_options": "every cell has one peer, its leader",
    "use_native_tablet_node_api": "there are no nodes",
    "verbose_logging": "nobody reads the logs of a query",
}
"""Fields of requests over RPC that are taken without effect, and why; besides the parameters above."""

REFUSED_ATTRIBUTES = {
    "chaos_cell_bundle": "there are no chaos cells",
    "chunk_format": "rows are stored in one way; say optimize_for",
    "chunk_merger_mode": "chunks are never merged",
    "compression_ratio": "it is not computed",
    "hunk_storage_node": "there are no hunks",
    "md5": "it is not computed",
    "optimize_for_statistics": "it is not computed",
    "replicated_table_options": "there is no replication",
    "replication_card_id": "there is no replication",
    "replication_collocation_id": "there is no replication",
    "security_tags": "access is not controlled by tags",
    "static_export_config": "queues are not exported",
    "update_mode": "it is not computed",
    "vital_queue_consumer": "say it when the consumer is registered",
}
"""Attributes that nobody may set, and why."""

INERT_ATTRIBUTES = by_name(
    {
        "cells are never moved, and have no options": "dynamic_options node_tag_filter options",
        "data are stored once, plain, and in one way": """
            compression_codec enable_consistent_chunk_replica_placement enable_striped_erasure
            erasure_codec hunk_erasure_codec media optimize_for primary_medium replication_factor vital
        """,
        "every table allows them, as newer servers do": "enable_shared_write_locks",
        "every table is as fast": "in_memory_mode",
        "nobody reads it": "abc folder_id",
        "tablets are not balanced": """
            cell_balancer_config desired_tablet_count desired_tablet_size disable_tablet_balancer
            enable_tablet_balancer max_tablet_size min_tablet_size tablet_balancer_config
        """,
        "there are no chunks to compact": """
            forced_chunk_view_compaction_revision forced_hunk_compaction_revision
        """,
        "there are no sensors": "enable_detailed_profiling profiling_mode profiling_tag",
        "there is no Skynet, and no bundle controller": """
            bundle_controller_target_config enable_skynet_sharing
        """,
        "there is one cell": "tablet_cell_bundle",
        "written rows are always read": "enable_dynamic_store_read",
    }
)
"""Attributes that are kept and shown, and change nothing else."""


REFUSED_FORMATS: dict[str, dict[str, tuple[Any, str]]] = {
    "arrow": {
        "enable_complex_types": (False, "composite values are YSON"),
        "enable_tz_index": (False, "values with a time zone cannot be read as Arrow"),
    },
    "schemaful_dsv": {
        "enable_column_names_header": (False, "name the columns in the format"),
        "enable_escaping": (True, "values are always escaped"),
        "escaping_symbol": ("\\", "values are escaped with backslashes"),
        "enable_table_index": (False, "there is one table"),
        "skip_unsupported_types": (False, "composite values are refused"),
    },
}
"""By format, the attributes that are refused with another value than this one, and why."""

INERT_FORMATS = {
    "buffer_size": "how much is sent at a time does not change it",
    "table_index_column": "there is one table",
}
"""Attributes of formats that are taken without effect, and why."""


def check_format(name: str, attributes: Mapping[str, Any]) -> None:
    """Refuse, with 800 and the reason, an attribute of a format that would be ignored."""
    refused = REFUSED_FORMATS.get(name, {})
    for attribute in refused.keys() & attributes.keys():
        only, reason = refused[attribute]
        if attributes[attribute] != only:
            what = f'Attribute "{attribute}" of the format "{name}"'
            raise _not_supported(what, reason, Code.INVALID_FORMAT)


def check_parameters(command: str, parameters: Mapping[str, Any]) -> None:
    """Refuse a parameter that would be ignored although it asks for something else."""
    refused = REFUSED_PARAMETERS.get(command, {})
    for name in refused.keys() & parameters.keys():
        # The query string of a request has texts.
        if parameters[name] and parameters[name] != "false":
            raise _not_supported(f'Parameter "{name}" of "{command}"', refused[name])


def check_path(attributes: Mapping[str, Any]) -> None:
    """Refuse an attribute of a path to write to that would be ignored."""
    for name in REFUSED_PATHS.keys() & attributes.keys():
        raise _not_supported(f'Path attribute "{name}"', REFUSED_PATHS[name])


def check_attribute(name: str, value: Any) -> None:
    """Refuse an attribute that would be ignored."""
    if name in REFUSED_ATTRIBUTES and value:
        raise _not_supported(f'Attribute "{name}"', REFUSED_ATTRIBUTES[name])


def _not_supported(what: str, reason: str, code: int = Code.GENERIC) -> YtError:
    return YtError(f"{what} is not supported by the embedded cluster: {reason}", code)
