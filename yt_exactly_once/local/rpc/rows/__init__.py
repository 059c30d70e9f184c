"""Rows in RPC messages: rowsets in the wire protocol, their schemas and lock masks."""
