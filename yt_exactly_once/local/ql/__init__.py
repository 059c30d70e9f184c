"""The query language of `select_rows`: parsed, typed and run on rows that the store seeks by their keys."""

from yt_exactly_once.local.ql.execution import execute

__all__ = ["execute"]
