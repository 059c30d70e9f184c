"""Protocols of the client, and whether this environment has what they need. It does not import the client."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from yt_exactly_once.errors import ConfigError

RPC_BACKEND = "rpc"
"""Backend of `ytsaurus-client` that speaks to RPC proxies."""

REQUEST_IDS = "enable_passing_request_id_to_driver"
"""Option of the client. It is on by default, passes text, and `ytsaurus-rpc-driver` 1.0.1 takes numbers."""

_RPC_BINDINGS = ("yt_driver_bindings", "yt_driver_rpc_bindings")
"""Modules of the bindings, as the client looks for them."""


def check_backend(client_config: Mapping[str, Any]) -> None:
    """Check that the client's backend is known, installed and usable; raise `ConfigError` if not."""
    backend = client_config.get("backend")
    if backend in {None, "http"}:
        return
    if backend != RPC_BACKEND:
        raise ConfigError(
            f"client_config asks for the backend {backend!r}",
            remedy="Leave backend out, or use 'http' or 'rpc'",
        )
    if not any(find_spec(module) for module in _RPC_BINDINGS):
        raise ConfigError(
            "client_config asks for the RPC backend, but its bindings are not installed",
            remedy="Run pip install ytsaurus-rpc-driver for the driver and all executors. Or leave "
            "backend out to use HTTP",
        )
    if client_config.get(REQUEST_IDS):
        raise ConfigError(
            f"client_config has {REQUEST_IDS}=True, and the RPC driver cannot read the client's ids: each "
            "command would fail before it is sent",
            remedy=f"Leave {REQUEST_IDS} out of client_config",
        )
