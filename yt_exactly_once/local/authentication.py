"""Whose requests these are: tokens, and users that a superuser names.

The cluster's own token belongs to `root`. Others are nodes of `//sys/cypress_tokens`, as on a server: the
SHA-256 of the token is the key, and `@user` says whose it is.
"""

from __future__ import annotations

import hashlib
import hmac

from yt_exactly_once.local.cypress import permissions
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.proxy import Proxy

TOKENS = "cypress_tokens"
ISSUED = "issued"
"""Attribute of the folder: there were tokens, so a revoked one is not just any."""
_UNAUTHORIZED = 401


def user_of(proxy: Proxy, token: str | bytes | None, named: str | None = None) -> str:
    """Return the user of a request: superusers may name another; raise `YtError` 111."""
    user = _owner(proxy, token.encode() if isinstance(token, str) else token)
    if not named or named == user:
        return user
    if user != permissions.ROOT:
        with proxy.store.read() as connection:
            if not permissions.is_superuser(View(connection, user=user)):
                raise _refused(
                    f"Client has provided X-YT-User-Name header but authenticated user {user} is not in "
                    "impersonation whitelist"
                )
    return named


def _owner(proxy: Proxy, token: bytes | None) -> str:
    own = proxy.token
    if token is None:
        if own is None:
            return permissions.ROOT
        raise _refused("Client is missing credentials")
    if own is not None and hmac.compare_digest(token, own.encode()):
        return permissions.ROOT
    with proxy.store.read() as connection:
        view = View(connection)
        node_id = view.find(TOKENS, digest(token))
        if node_id is not None:
            return str(view.attribute(node_id, "user"))
        folder = view.find(TOKENS) or ""
        is_used = view.children(folder) or view.attribute(folder, ISSUED)
    if own is None and not is_used:
        # Tokens mean nothing here, so any will do: clients have one for another cluster.
        return permissions.ROOT
    raise _refused("Token is invalid or expired")


def digest(token: bytes) -> str:
    """Return the key that a token has in the tree."""
    return hashlib.sha256(token).hexdigest()


def _refused(message: str) -> YtError:
    return YtError(message, Code.INVALID_CREDENTIALS, http_status=_UNAUTHORIZED)
