"""All scalar functions by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt_exactly_once.local.ql.functions import dates, documents, general, numbers, strings

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.functions.signatures import Function

SCALARS: dict[str, Function] = {
    function.name: function
    for module in (general, numbers, strings, documents, dates)
    for function in module.FUNCTIONS
}
