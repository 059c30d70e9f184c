"""Which failures of a commit prove that it was not applied, and where the server decides each."""

from __future__ import annotations

from collections.abc import Mapping

from yt_exactly_once.ytsaurus.failures import TRANSPORT_ERRORS, codes_in

_NODE, _NATIVE = "server/node/tablet_node", "ytlib/api/native"
_ROW = "client/table_client/unversioned_row.cpp"
_COLUMNS = f"{_ROW}, ValidateDuplicateAndRequiredValueColumns"
_LIMITS = f"{_NODE}/security_manager.cpp, ValidateResourceLimits"

PROOFS: Mapping[int, str] = {
    307: f"{_ROW}, ValidateValueType",
    308: f"{_ROW}, ValidateClientRow",
    321: f"{_ROW}, ValidateRowValueCount",
    322: _COLUMNS,
    323: _COLUMNS,
    326: f"{_ROW}, ValidateDynamicValue",
    500: f"{_NATIVE}/transaction.cpp, TTableCommitSession",
    901: f"{_NATIVE}/transaction.cpp, CheckPermissions",
    902: _LIMITS,
    1700: f"{_NODE}/sorted_dynamic_store.cpp, CheckRowLocks",
    1701: f"{_NODE}/tablet_snapshot_store.cpp, GetTabletSnapshotOrThrow",
    1702: f"{_NATIVE}/tablet_helpers.cpp, ValidateTabletMounted",
    1703: f"{_NODE}/tablet_cell_write_manager.cpp, ValidateTabletStoreLimit",
    1704: f"{_NODE}/tablet.cpp, ValidateMountRevision",
    1712: f"{_NODE}/sorted_dynamic_store.cpp, WaitOnBlockedRow",
    1713: f"{_NODE}/sorted_dynamic_store.cpp, WaitOnBlockedRow",
    1717: f"{_NATIVE}/tablet_request_batcher.cpp, IncrementAndCheckRowCount",
    1720: _LIMITS,
    1725: f"{_NODE}/tablet_service.cpp, Write",
    1729: f"{_NODE}/sorted_chunk_store.cpp, CheckRowLocks",
    1739: f"{_NODE}/tablet_snapshot_store.cpp, ValidateBundleNotBanned",
}
"""Codes which prove that a commit was not applied, and the function below `yt/yt` that answers with them.

Each is raised while the proxy prepares rows or tablets take them. The proxy asks for the commit only after
all have succeeded (`DoCommit` in `ytlib/api/native/transaction.cpp`). Any other code proves nothing.
"""

_GENERIC = frozenset({0, 1})
"""Codes of what wraps an error."""


def leaves_outcome_unknown(error: BaseException) -> bool:
    """Check whether a failed commit may still have been applied: unless each code of it is a proof."""
    codes = set(codes_in(error)) - _GENERIC
    return isinstance(error, TRANSPORT_ERRORS) or not codes or not codes <= PROOFS.keys()
