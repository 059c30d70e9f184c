"""Secrets that a command keeps in a file: a command line is shown to every user of the machine."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from yt_exactly_once.errors import ConfigError

_SECRET_BYTES = 16


def kept_secret(file: Path, option: str) -> str:
    """Return the secret in a file, created if missing; raise `ConfigError` if it cannot serve."""
    try:
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return _read(file, option)
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(secret + "\n")
    except OSError as error:
        raise ConfigError(
            f"The file with the secret cannot be used: {error.strerror}",
            remedy=f"Pass another path to {option}",
            path=file,
        ) from error
    return secret


def _read(file: Path, option: str) -> str:
    if file.stat().st_mode & 0o077:
        raise ConfigError(
            "Other users of the machine can read the file with the secret",
            remedy=f"Run: chmod 600 {file}",
            path=file,
        )
    secret = file.read_text().strip()
    if not secret:
        raise ConfigError(
            "The file with the secret is empty",
            remedy=f"Remove it, and {option} creates another one",
            path=file,
        )
    return secret
