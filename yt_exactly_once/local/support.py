"""What a server knows of and this cluster refuses: commands, and what a request may carry.

`docs/without_effect.toml` lists what is accepted without effect, since no code has to know it. What is on
neither list does what it does on a server, or no server knows it. `docs/reference/local-commands.md` shows
both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yt_exactly_once.local.errors import Code, YtError

_COMMANDS = {
    "there is no scheduler": """
        abandon_job abort_job abort_operation complete_operation dump_job_context get_job
        get_job_fail_context get_job_input get_job_input_paths get_job_spec get_job_stderr get_operation
        list_jobs list_operations patch_operation_spec poll_job_shell resume_operation start_operation
        suspend_operation update_operation_parameters
    """,
    "there is no query tracker": """
        abort_query alter_query get_query get_query_result list_queries read_query_result start_query
    """,
    "there is one cluster with one cell": """
        alter_table_replica balance_tablet_cells create_table_backup disable_table_replica
        enable_table_replica externalize get_in_sync_replicas internalize pull_rows
        reshard_table_automatic restore_table_backup update_replication_progress
    """,
    "nothing of its data is in chunks of nodes, or works in the background": """
        get_table_columnar_statistics get_tablet_errors locate_skynet_share
    """,
    "masters and nodes are not administered": """
        build_master_snapshots build_snapshot heal_exec_node switch_leader transfer_account_resources
        transfer_pool_resources
    """,
    "pipelines do not need it": """
        check_permission_by_acl explain_query get_file_from_cache put_file_to_cache read_blob_table
        read_journal truncate_journal write_journal
    """,
}
REFUSED_COMMANDS = {name: reason for reason, names in _COMMANDS.items() for name in names.split()}
"""Wire names in version 4 of the API, and why they are not there: whoever sends one learns it."""

REFUSED_DESCRIPTORS = [
    {
        "name": name,
        "input_type": "null",
        "output_type": "structured",
        "is_volatile": True,
        "is_heavy": False,
    }
    for name in sorted(REFUSED_COMMANDS)
]
"""Entries of them for `GET /api/v4`: clients send only what is listed, and would never hear the reason."""

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

REFUSED_FORMATS: dict[str, dict[str, tuple[Any, str]]] = {
    "arrow": {
        "enable_complex_types": (False, "composite values are YSON"),
        "enable_tz_index": (False, "values with a time zone cannot be read as Arrow"),
    }
}
"""By format, the attributes that are refused with another value than this one, and why."""


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
