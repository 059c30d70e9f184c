"""All scalar functions by name, each declared by one of these modules."""

from yt_exactly_once.local.ql.functions import dates, documents, general, numbers, strings
from yt_exactly_once.local.ql.functions.signatures import FUNCTIONS as SCALARS

__all__ = ["SCALARS", "dates", "documents", "general", "numbers", "strings"]
