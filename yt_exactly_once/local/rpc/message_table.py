"""The protobuf messages of the RPC protocol: names, numbers and types of the fields that are used.

A line for each message, or for several that are alike: `name: field=number type`, then `!` for required,
`*` for repeated, `=value` for a default. `+group` means the fields of a group. Numbers after a semicolon are
fields of a request that change no result (`docs/without_effect.toml`); any other field is newer, and refused.
A line in brackets names the package. Enumerations travel as `enum` numbers.
"""

GROUPS = {
    "mutating": "mutating_options=103 TMutatingOptions",
    "prerequisite": "prerequisite_options=101 TPrerequisiteOptions",
    "range": "tablet_range_options=104 TTabletRangeOptions",
    "rows": "rowset_descriptor=200 TRowsetDescriptor!",
    "tracking": "suppressable_access_tracking_options=104 TSuppressableAccessTrackingOptions",
    "transactional": "transactional_options=100 TTransactionalOptions",
}

MESSAGES = """
[NYT.NProto]
TGuid: first=1 fixed64!, second=2 fixed64!
TError: code=1 int32!, message=2 string, attributes=3 TAttributeDictionary, inner_errors=4 TError*
TSerializedMessageEnvelope: codec=1 int32=0

[NYT.NYTree.NProto]
TAttribute: key=1 string!, value=2 bytes!
TAttributeDictionary: attributes=1 TAttribute*
TAttributeFilter: keys=1 string*, paths=2 string*
TReadRequestComplexityLimits: node_count=1 int64, result_size=2 int64

[NYT.NBus.NProto]
THandshake: connection_id=1 TGuid!, encryption_mode=3 int32

[NYT.NRpc.NProto]
TStreamingParameters: window_size=1 int64
TCredentialsExt: token=2 string
TRequestHeader: request_id=1 TGuid, service=2 string!, method=3 string!, retry=11 bool, user=12 string, \
    request_codec=23 int32, response_codec=24 int32, \
    server_attachments_streaming_parameters=33 TStreamingParameters, credentials_ext=110 TCredentialsExt
TResponseHeader: request_id=1 TGuid, error=2 TError, codec=6 int32
TRequestCancelationHeader: request_id=1 TGuid!, service=2 string!, method=3 string!
TStreamingPayloadHeader: request_id=1 TGuid!, service=2 string!, method=3 string!, \
    sequence_number=5 int32!, codec=6 int32
TStreamingFeedbackHeader: request_id=1 TGuid!, service=2 string!, method=3 string!, \
    read_position=5 int64!
TRspDiscover: up=1 bool!

[NYT.NChaosClient.NProto]
TReplicationProgress:

[NYT.NChunkClient.NProto]
TDataStatistics: row_count=3 int64=0

[NYT.NHiveClient.NProto]
TTimestampMap: cell_tags=1 int32*, timestamps=2 uint64*

[NYT.NTableClient.NProto]
TVersionedReadOptions: read_mode=1 int32!

[NYT.NTabletClient.NProto]
TLockMask: bitmap=1 uint64*, size=2 int32!

[NYT.NApi.NRpcProxy.NProto]
TColumnSchema: name=1 string!, type=2 int32, logical_type=3 int32, \
    type_v3=11 bytes, lock=4 string, expression=5 string, aggregate=6 string, sort_order=7 int32, \
    group=8 string, required=9 bool=false
TTableSchema: columns=1 TColumnSchema*, strict=2 bool=true, unique_keys=3 bool=false
TRowsetDescriptor: wire_format_version=1 int32=1, rowset_kind=2 enum=1, \
    name_table_entries=3 TRowsetDescriptor.TNameTableEntry*, rowset_format=4 enum=0, \
    schema=5 TTableSchema
TRowsetDescriptor.TNameTableEntry: name=1 string, type=2 int32, logical_type=3 int32
TRowsetStatistics: total_row_count=1 int64!, data_statistics=2 TDataStatistics!
TLegacyAttributeKeys: all=1 bool, keys=2 string*
TSuppressableAccessTrackingOptions: suppress_access_tracking=1 bool=false, \
    suppress_modification_tracking=2 bool=false, suppress_expiration_timeout_renewal=3 bool=false
TTransactionalOptions: transaction_id=1 TGuid, ping=2 bool=false, ping_ancestors=3 bool=false
TPrerequisiteOptions: transactions=1 TPrerequisiteOptions.TTransactionPrerequisite*, \
    revisions=2 TPrerequisiteOptions.TRevisionPrerequisite*
TPrerequisiteOptions.TTransactionPrerequisite: transaction_id=1 TGuid!
TPrerequisiteOptions.TRevisionPrerequisite: path=2 string!, revision=3 uint64!
TMutatingOptions: mutation_id=1 TGuid, retry=2 bool
TTabletRangeOptions: first_tablet_index=1 int32, last_tablet_index=2 int32

TReqStartTransaction: type=1 enum!, timeout=2 int64, id=3 TGuid, parent_id=4 TGuid, sticky=6 bool=false, \
    ping=7 bool=true, atomicity=9 enum=0, durability=10 enum=0, attributes=11 TAttributeDictionary, \
    deadline=12 uint64, prerequisite_transaction_ids=13 TGuid*, start_timestamp=14 uint64, +mutating; 5 8 15
TRspStartTransaction: id=1 TGuid!, start_timestamp=2 uint64!, sequence_number_source_id=3 int64
TReqPingTransaction: transaction_id=1 TGuid!, ping_ancestors=7 bool=true
TRspPingTransaction TRspAbortTransaction TRspDetachTransaction TRspRemoveNode TRspSetNode \
    TRspMultisetAttributesNode TRspUnlockNode TRspConcatenateNodes TRspAddMember TRspRemoveMember \
    TRspCheckClusterLiveness TRspMountTable TRspUnmountTable TRspRemountTable TRspFreezeTable \
    TRspUnfreezeTable TRspReshardTable TRspTrimTable TRspAlterTable TRspModifyRows \
    TRspAdvanceQueueConsumer TRspRegisterQueueConsumer TRspUnregisterQueueConsumer \
    TRspRemoveQueueProducerSession TRspReadFile TRspWriteFile TRspReadTable TRspWriteTable:
TReqCommitTransaction: transaction_id=1 TGuid!, additional_participant_cell_ids=7 TGuid*, +prerequisite, \
    +mutating
TRspCommitTransaction: commit_timestamps=1 TTimestampMap, primary_commit_timestamp=2 uint64
TReqAbortTransaction: transaction_id=1 TGuid!, +mutating
TReqAttachTransaction: transaction_id=1 TGuid!, ping_period=4 uint64, ping=5 bool=true; 2 6
TRspAttachTransaction: type=1 enum!, start_timestamp=2 uint64!, atomicity=3 enum!, durability=4 enum!, \
    timeout=5 int64!, sequence_number_source_id=6 int64
TReqDetachTransaction: transaction_id=1 TGuid!
TReqGenerateTimestamps: count=1 int32=1, clock_cluster_tag=2 int32
TRspGenerateTimestamps: timestamp=1 uint64!

TReqExistsNode: path=1 string!, +transactional, +prerequisite, +tracking; 102
TRspExistsNode: exists=1 bool!
TReqGetNode TReqListNode: path=1 string!, legacy_attributes=2 TLegacyAttributeKeys, max_size=3 int64, \
    attributes=4 TAttributeFilter, complexity_limits=6 TReadRequestComplexityLimits, +transactional, \
    +prerequisite, +tracking; 102 200
TRspGetNode TRspListNode TRspGetTablePivotKeys: value=1 bytes!
TReqCreateObject: type=1 int32!, attributes=2 TAttributeDictionary, ignore_existing=3 bool, +mutating; 4
TRspCreateObject: object_id=1 TGuid!
TReqCreateNode: path=1 string!, type=2 int32!, attributes=3 TAttributeDictionary, \
    recursive=4 bool=false, force=5 bool=false, ignore_existing=6 bool=false, \
    lock_existing=7 bool=false, ignore_type_mismatch=8 bool=false, +transactional, +prerequisite, \
    +mutating
TRspCreateNode TRspCopyNode TRspMoveNode TRspLinkNode: node_id=1 TGuid!
TReqRemoveNode: path=1 string!, recursive=2 bool=true, force=3 bool=false, +transactional, \
    +prerequisite, +mutating
TReqSetNode: path=1 string!, value=2 bytes!, recursive=3 bool, force=4 bool, +transactional, \
    +prerequisite, +mutating, +tracking
TReqMultisetAttributesNode: path=1 string!, subrequests=2 TReqMultisetAttributesNode.TSubrequest*, \
    force=3 bool, +transactional, +prerequisite, +mutating, +tracking
TReqMultisetAttributesNode.TSubrequest: attribute=1 string!, value=2 bytes!
TReqLockNode: path=1 string!, mode=2 int32!, waitable=3 bool=false, child_key=4 string, \
    attribute_key=5 string, +transactional, +prerequisite, +mutating
TRspLockNode: node_id=1 TGuid!, lock_id=2 TGuid!, revision=3 uint64
TReqUnlockNode: path=1 string!, +transactional, +prerequisite, +mutating
TReqCopyNode: src_path=1 string!, dst_path=2 string!, recursive=3 bool=false, force=4 bool=false, \
    preserve_account=5 bool=false, preserve_expiration_time=6 bool=false, \
    preserve_creation_time=7 bool=false, ignore_existing=8 bool=false, \
    pessimistic_quota_check=9 bool=true, preserve_modification_time=10 bool=false, \
    preserve_owner=11 bool=false, preserve_acl=12 bool=false, lock_existing=13 bool=false, \
    preserve_expiration_timeout=14 bool=false, +transactional, +prerequisite, +mutating; 15
TReqMoveNode: src_path=1 string!, dst_path=2 string!, recursive=3 bool=false, force=4 bool=false, \
    preserve_account=5 bool=false, preserve_expiration_time=6 bool=false, \
    pessimistic_quota_check=7 bool=true, preserve_creation_time=8 bool=false, \
    preserve_modification_time=9 bool=false, preserve_owner=11 bool=false, \
    preserve_expiration_timeout=12 bool=false, +transactional, +prerequisite, +mutating; 13
TReqLinkNode: src_path=1 string!, dst_path=2 string!, recursive=3 bool=false, force=4 bool=false, \
    ignore_existing=5 bool=false, lock_existing=6 bool=false, +transactional, +prerequisite, +mutating
TReqConcatenateNodes: src_paths=1 string*, dst_path=2 string!, +transactional, +mutating; 3
TReqAddMember TReqRemoveMember: group=1 string!, member=2 string!, \
    prerequisite_options=104 TPrerequisiteOptions, +mutating
TReqCheckPermission: user=1 string!, path=2 string!, permission=3 int32!, vital=5 bool, +transactional, \
    +prerequisite; 4 102
TCheckPermissionResult: action=1 enum!, object_id=2 TGuid!, object_name=3 string, subject_id=4 TGuid!, \
    subject_name=5 string
TRspCheckPermission: result=1 TCheckPermissionResult!
TReqCheckClusterLiveness: check_cypress_root=1 bool!; 2 3

TTabletInfo: tablet_id=1 TGuid!, mount_revision=2 uint64!, state=3 int32!, pivot_key=4 bytes!, \
    cell_id=5 TGuid, cell_config_version=6 int32
TReqGetTableMountInfo: path=1 string!
TRspGetTableMountInfo: table_id=1 TGuid!, schema=2 TTableSchema!, tablets=3 TTabletInfo*, \
    dynamic=4 bool!, upstream_replica_id=5 TGuid!, physical_path=7 string
TReqGetTabletInfos: path=1 string!, tablet_indexes=2 int32*, request_errors=3 bool=false
TRspGetTabletInfos: tablets=1 TRspGetTabletInfos.TTabletInfo*
TRspGetTabletInfos.TTabletInfo: total_row_count=1 int64!, trimmed_row_count=2 int64!, \
    barrier_timestamp=3 uint64, last_write_timestamp=4 uint64, tablet_errors=6 TError*, \
    delayed_lockless_row_count=7 int64
TReqGetTablePivotKeys: path=1 string!, represent_key_as_list=2 bool
TReqMountTable: path=1 string!, cell_id=2 TGuid, freeze=3 bool=false, target_cell_ids=4 TGuid*, \
    +mutating, +range
TReqUnmountTable: path=1 string!, force=2 bool=false, +mutating, +range
TReqRemountTable TReqFreezeTable TReqUnfreezeTable: path=1 string!, +mutating, +range
TReqReshardTable: path=1 string!, tablet_count=3 int32, uniform=4 bool, enable_slicing=5 bool, \
    rowset_descriptor=200 TRowsetDescriptor, +mutating, +range; 6
TReqTrimTable: path=1 string!, tablet_index=2 int32!, trimmed_row_count=3 uint64!
TReqAlterTable: path=1 string!, schema=2 bytes, dynamic=3 bool, upstream_replica_id=4 TGuid, \
    schema_modification=5 enum, replication_progress=6 TReplicationProgress, schema_id=7 TGuid, \
    +transactional, +mutating

TReqModifyRows: transaction_id=1 TGuid!, path=2 string!, row_modification_types=3 enum*, \
    require_sync_replica=4 bool, upstream_replica_id=5 TGuid, sequence_number=6 int64, \
    row_legacy_read_locks=7 uint32*, row_legacy_locks=8 uint64*, sequence_number_source_id=9 int64, \
    allow_missing_key_columns=10 bool, row_locks=11 TLockMask*, +rows
TReqLookupRows: path=1 string!, columns=2 string*, timestamp=3 uint64=4611686018427387649, \
    keep_missing_rows=4 bool=true, retention_timestamp=10 uint64=0, +rows; 7 8 9 11 106
TRspLookupRows TRspVersionedLookupRows: +rows
TRetentionConfig: min_data_versions=1 uint64=1, max_data_versions=2 uint64=1, \
    min_data_ttl=3 uint64=1800000000, max_data_ttl=4 uint64=1800000000
TReqVersionedLookupRows: path=1 string!, columns=2 string*, timestamp=3 uint64=4611686018427387649, \
    keep_missing_rows=4 bool=true, retention_config=6 TRetentionConfig, +rows; 7 8 9 10 106
TQueryStatistics: rows_read=1 int64, rows_written=3 int64, incomplete_input=11 bool, \
    incomplete_output=12 bool
TReqSelectRows: query=1 string!, timestamp=3 uint64=4611686018427387649, input_row_limit=4 uint64, \
    output_row_limit=5 uint64, range_expansion_limit=6 uint64, fail_on_incomplete_result=7 bool, \
    allow_full_scan=11 bool, allow_join_without_index=12 bool, udf_registry_path=13 string, \
    retention_timestamp=16 uint64=0, placeholder_values=18 bytes, use_canonical_null_relations=20 bool, \
    syntax_version=22 int32=1, versioned_read_options=25 TVersionedReadOptions, +tracking; \
    8 9 10 14 15 17 19 21 23
TRspSelectRows: statistics=201 TQueryStatistics, +rows

TRowBatchReadOptions: max_row_count=1 int64, max_data_weight=2 int64, data_weight_per_row_hint=3 int64
TReqPullQueue: queue_path=1 string, offset=2 int64, partition_index=3 int32, \
    row_batch_read_options=4 TRowBatchReadOptions; 5 6
TRspPullQueue TRspPullQueueConsumer: rowset_descriptor=1 TRowsetDescriptor, start_offset=2 int64
TReqPullQueueConsumer: consumer_path=1 string, queue_path=2 string, offset=3 int64, \
    partition_index=4 int32, row_batch_read_options=5 TRowBatchReadOptions; 6
TReqAdvanceQueueConsumer: transaction_id=1 TGuid, consumer_path=2 string, queue_path=3 string, \
    partition_index=4 int32, old_offset=5 int64, new_offset=6 int64
TReqRegisterQueueConsumer: queue_path=1 string, consumer_path=2 string, vital=3 bool, \
    partitions=4 TReqRegisterQueueConsumer.TRegistrationPartitions
TReqRegisterQueueConsumer.TRegistrationPartitions: items=1 int32*
TReqUnregisterQueueConsumer TReqListQueueConsumerRegistrations: queue_path=1 string, \
    consumer_path=2 string
TRspListQueueConsumerRegistrations: \
    registrations=1 TRspListQueueConsumerRegistrations.TQueueConsumerRegistration*
TRspListQueueConsumerRegistrations.TQueueConsumerRegistration: queue_path=1 string, \
    consumer_path=2 string, vital=3 bool, \
    partitions=4 TRspListQueueConsumerRegistrations.TQueueConsumerRegistration.TRegistrationPartitions
TRspListQueueConsumerRegistrations.TQueueConsumerRegistration.TRegistrationPartitions: items=1 int32*
TReqCreateQueueProducerSession: producer_path=1 string, queue_path=2 string, session_id=3 string, \
    user_meta=4 bytes
TRspCreateQueueProducerSession: sequence_number=1 int64, epoch=2 int64, user_meta=3 bytes
TReqRemoveQueueProducerSession: producer_path=1 string, queue_path=2 string, session_id=3 string
TReqPushQueueProducer: transaction_id=1 TGuid, producer_path=2 string, queue_path=3 string, \
    session_id=4 string, epoch=5 int64, user_meta=6 bytes, sequence_number=7 int64, +rows
TRspPushQueueProducer: last_sequence_number=1 int64, skipped_row_count=2 int64

TReqReadFile: path=1 string!, offset=2 int64, length=3 int64, +transactional, +tracking; 4
TReadFileMeta: revision=1 uint64!, id=2 TGuid
TReqWriteFile: path=1 string!, compute_md5=2 bool=false, +transactional, +prerequisite; 3
TReqReadTable: path=1 string!, unordered=2 bool=false, omit_inaccessible_columns=3 bool=false, \
    enable_table_index=5 bool=false, enable_row_index=6 bool=false, enable_range_index=7 bool=false, \
    desired_rowset_format=8 enum=0, config=4 bytes, format=9 bytes, \
    suppressable_access_tracking_options=101 TSuppressableAccessTrackingOptions, +transactional; 10
TRspReadTableMeta: start_row_index=1 int64!, omitted_inaccessible_columns=3 string*, \
    statistics=4 TRowsetStatistics!, schema=5 TTableSchema!
TReqWriteTable: path=1 string!, format=3 bytes, +transactional; 2
TWriteTableMeta: schema=1 TTableSchema!
"""
