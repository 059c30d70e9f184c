"""An embedded YTsaurus cluster: a real server for HTTP and RPC with a durable store, for tests and demos.

It shares no code with the rest of the package, so that a mistake there cannot cancel itself out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yt_exactly_once.local.cluster import LocalCluster as LocalCluster
    from yt_exactly_once.local.proxy_process import LocalClusterError as LocalClusterError

__all__ = ["LocalCluster", "LocalClusterError"]


def __getattr__(name: str) -> Any:
    """Import on first use: processes of the cluster import this package too."""
    if name in __all__:
        from yt_exactly_once.local import cluster  # noqa: PLC0415

        return getattr(cluster, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
