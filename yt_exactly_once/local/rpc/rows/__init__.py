"""Rows in RPC messages: rowsets in the wire protocol, and their schemas."""
