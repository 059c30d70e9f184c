"""How the benchmarks configure the clients that they measure."""

from __future__ import annotations

UNCOMPRESSED = {"content_encoding": "identity", "accept_encoding": "identity"}
"""Of a client's `proxy`: bodies as the sinks send them; compressing would be most of the work."""
