"""Commands of YTsaurus that the embedded cluster does not have, and never pretends to have.

They are not among the published descriptors; a client that sends one anyway gets an error envelope.
"""

from __future__ import annotations

_BY_REASON = {
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
COMMANDS = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}
"""Wire names in version 4 of the API, and why they are not there."""
