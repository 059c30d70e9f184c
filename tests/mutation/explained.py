"""Damages that no quick test can notice, and why.

The key is the module, the function or class, the source that is replaced, and what it is replaced by.
"""

from __future__ import annotations

EXPLAINED: dict[tuple[str, str, str, str], str] = {}
