"""Formats of the wire: YSON, JSON and Arrow, for single values and for rows."""
