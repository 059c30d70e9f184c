"""Which tests run when: every time, further on (`-m further`), or in the night (`-m nightly`)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

NIGHTLY = bool(os.environ.get("YT_EXACTLY_ONCE_NIGHTLY"))
"""Whether there is time for every combination."""


def first_of(cases: Iterable[Any], *, count: int = 1) -> list[Any]:
    """Return the cases of a test that shows its promise with the first ones; the others are for the night.

    For `parametrize`; a tuple is a case of several arguments.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[pytest.mark.nightly] * (number >= count),
        )
        for number, case in enumerate(cases)
    ]
