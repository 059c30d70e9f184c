"""The query language of `select_rows`: parsed, typed and run on the SQL engine of the store."""

from yt_exactly_once.local.ql.execution import execute

__all__ = ["execute"]
