"""Spark's settings: from `NAME=VALUE`, from `spark-defaults.conf`, or from the UI of a running driver."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from yt_exactly_once.errors import ConfigError

_PATIENCE_SECONDS = 30
"""The first request to a driver starts its API, which takes seconds."""


def from_texts(texts: Iterable[str]) -> dict[str, str]:
    """Read settings as spark-submit takes them; raise `ConfigError` if one is not `NAME=VALUE`."""
    conf = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not found or not name.strip():
            raise ConfigError(f"{text!r} is not NAME=VALUE", remedy="Write it as for spark-submit")
        conf[name.strip()] = value
    return conf


def default_file() -> Path | None:
    """Return the `spark-defaults.conf` that Spark would read on this machine, if there is one."""
    folder = os.environ.get("SPARK_CONF_DIR")
    home = os.environ.get("SPARK_HOME")
    if folder is None and home is not None:
        folder = f"{home}/conf"
    path = None if folder is None else Path(folder, "spark-defaults.conf")
    return path if path is not None and path.is_file() else None


def from_file(path: Path) -> dict[str, str]:
    """Read names and values of a `spark-defaults.conf`; raise `ConfigError` if it cannot be read."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"Spark's settings cannot be read: {error}", remedy="Check the path", path=path
        ) from error
    conf = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            name, _, value = stripped.replace("=", " ", 1).replace("\t", " ").partition(" ")
            conf[name] = value.strip()
    return conf


def from_ui(url: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Ask the UI of a running driver for its settings, without secrets, and why stages failed.

    Raises:
        ConfigError: no driver answers there.
    """
    if not url.startswith(("http://", "https://")):
        url = f"http://{url}"
    base = url.rstrip("/") + "/api/v1/applications"
    try:
        (first, *_) = _get(base)
        properties = _get(f"{base}/{first['id']}/environment")["sparkProperties"]
        failed = _get(f"{base}/{first['id']}/stages?status=failed")
        why = tuple(str(stage.get("failureReason", "")) for stage in failed)
        return {str(name): str(value) for name, value in properties}, why
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        http.client.HTTPException,
        urllib.error.URLError,
    ) as error:
        raise ConfigError(
            f"No Spark UI answers there ({error})",
            remedy="Pass the address that the driver logs at its start, usually http://DRIVER:4040",
            url=url,
        ) from error


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 - http or https
        return json.load(answer)
