"""The SQL tables of the tree.

Every changeable fact is versioned by the master transaction that made it; the trunk, which everybody
sees, is the empty transaction id.
"""

from __future__ import annotations

from sqlite3 import Connection

from yt_exactly_once.local.store import scalar

CLUSTER_NAME = "local"
TRUNK = ""
ROOT_ID = "1-1-1012f-1"
"""Id of the root: a map node of cell 1."""

# In entries a child_id is null where a transaction removed the child. The mode of a content says whether it
# replaces the one below or is appended to it. Every read looks for expired nodes. A chunk goes with the last
# list that refers to it.
_STATEMENTS = """
CREATE TABLE cypress_nodes (id TEXT PRIMARY KEY, type TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE cypress_entries (parent_id TEXT, name TEXT, tx TEXT, child_id TEXT,
    PRIMARY KEY (parent_id, name, tx)) WITHOUT ROWID;
CREATE INDEX entries_by_child ON cypress_entries (child_id);
CREATE INDEX entries_by_tx ON cypress_entries (tx) WHERE tx != '';
CREATE TABLE cypress_attributes (node_id TEXT, tx TEXT, name TEXT, value BLOB,
    PRIMARY KEY (node_id, tx, name)) WITHOUT ROWID;
CREATE INDEX attributes_by_tx ON cypress_attributes (tx) WHERE tx != '';
CREATE INDEX limited ON cypress_attributes (name) WHERE name = 'resource_limits';
CREATE INDEX expirations ON cypress_attributes (name)
    WHERE tx = '' AND name IN ('expiration_time', 'expiration_timeout');
CREATE TABLE cypress_contents (node_id TEXT, tx TEXT, mode TEXT, value BLOB,
    PRIMARY KEY (node_id, tx)) WITHOUT ROWID;
CREATE INDEX contents_by_tx ON cypress_contents (tx) WHERE tx != '';
CREATE TABLE chunks (id INTEGER PRIMARY KEY, size INTEGER, row_count INTEGER, written INTEGER, data BLOB);
CREATE TABLE chunk_refs (node_id TEXT, tx TEXT, position INTEGER, chunk_id INTEGER,
    PRIMARY KEY (node_id, tx, position)) WITHOUT ROWID;
CREATE INDEX chunk_refs_by_chunk ON chunk_refs (chunk_id);
CREATE TABLE master_transactions (id TEXT PRIMARY KEY, parent_id TEXT, timeout INTEGER, expires REAL,
    attributes BLOB) WITHOUT ROWID;
CREATE INDEX master_transactions_by_expiry ON master_transactions (expires);
CREATE TABLE cypress_locks (id TEXT PRIMARY KEY, node_id TEXT, tx TEXT, mode TEXT, child_key TEXT,
    attribute_key TEXT, state TEXT, explicit INTEGER, created REAL, acquired REAL);
CREATE INDEX locks_by_node ON cypress_locks (node_id);
CREATE INDEX locks_by_tx ON cypress_locks (tx);
CREATE TABLE cypress_accesses (node_id TEXT PRIMARY KEY, count INTEGER NOT NULL, at TEXT NOT NULL)
    WITHOUT ROWID;
CREATE TABLE mutations (id TEXT PRIMARY KEY, created REAL, answer BLOB) WITHOUT ROWID;
CREATE INDEX mutations_by_age ON mutations (created);
CREATE TRIGGER forget_chunk AFTER DELETE ON chunk_refs
    WHEN NOT EXISTS (SELECT 1 FROM chunk_refs WHERE chunk_id = old.chunk_id)
    BEGIN DELETE FROM chunks WHERE id = old.chunk_id; END
"""

VERSIONED = {
    "cypress_entries": "parent_id",
    "cypress_attributes": "node_id",
    "cypress_contents": "node_id",
    "chunk_refs": "node_id",
}
"""What transactions keep versions of, with the column of the node."""


def create(connection: Connection) -> bool:
    """Create the tables if they are missing; tell whether they were."""
    if scalar(connection, "SELECT 1 FROM sqlite_master WHERE name = 'cypress_nodes'"):
        return False
    for statement in _STATEMENTS.split(";\n"):
        connection.execute(statement)
    connection.execute("INSERT INTO cypress_nodes VALUES (?, 'map_node')", (ROOT_ID,))
    return True
