"""Whether an address is a proxy of YTsaurus: asked once, before retries can hide a mistake.

A name that does not resolve, or a server that is no proxy, does not become one by waiting. A proxy that is
down may come back, so that is a transient error.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from yt.packages import requests
from yt.packages.requests.utils import get_environ_proxies, select_proxy
from yt.wrapper.http_helpers import get_proxy_address_url

from yt_exactly_once.errors import AccessError, ClusterUnavailableError, ProxyNotFoundError
from yt_exactly_once.ytsaurus.failures import NO_ANSWER, REFUSED_TOKEN, reason

if TYPE_CHECKING:
    from yt.wrapper import YtClient

_PATIENCE_SECONDS = 5
_REMEDY = "Check proxy= or YT_PROXY: it is the host and the port of an HTTP proxy, or of a balancer"
_NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
_OK, _UNAUTHORIZED, _REDIRECTS, _NOT_NOW = 200, 401, range(300, 400), {500, 502, 503, 504}


def url_of(client: YtClient) -> str:
    """Return the address that the client makes of the configured one."""
    return str(get_proxy_address_url(client=client))


def require_proxy(client: YtClient) -> str:
    """Return the address when a proxy of YTsaurus answers there.

    Raises:
        ProxyNotFoundError: the name does not resolve, or the server that answers is no proxy.
        AccessError: the proxy refuses the token.
        ClusterUnavailableError: nothing answers now.
    """
    url = url_of(client)
    split = urlsplit(url)
    host, port = split.hostname or "", split.port or (443 if split.scheme == "https" else 80)
    _require_name(url, host, port)
    where = {"proxy": url}
    try:
        answer = _ask(url)
    except requests.exceptions.SSLError as error:
        plain = f"http://{host}:{port}"
        with suppress(requests.exceptions.RequestException):
            if _lists_versions(_ask(plain)):
                raise ProxyNotFoundError(
                    "The proxy at this address speaks plain HTTP, and the address asks for TLS",
                    remedy=f"Use {plain}, or the port for https",
                    **where,
                ) from error
        # The client may have certificates of its own; its first request decides.
        return url
    except requests.exceptions.RequestException as error:
        raise ClusterUnavailableError(
            f"The proxy does not answer ({reason(error)})", remedy=NO_ANSWER.remedy, **where
        ) from error
    if answer.status_code == _UNAUTHORIZED:
        raise AccessError(
            "The proxy refused the token (HTTP 401)", remedy=REFUSED_TOKEN.remedy, **where
        )
    if answer.status_code in _NOT_NOW:
        raise ClusterUnavailableError(
            f"The proxy answers HTTP {answer.status_code}",
            remedy="Wait until the cluster is healthy, or use another proxy",
            **where,
        )
    if answer.status_code in _REDIRECTS:
        raise ProxyNotFoundError(
            f"The server at this address redirects to {answer.headers.get('Location')}",
            remedy="Use the address that it redirects to",
            **where,
        )
    if not _lists_versions(answer):
        raise ProxyNotFoundError(
            f"The server at this address is no proxy of YTsaurus: it answers GET /api with HTTP "
            f"{answer.status_code}",
            remedy=_REMEDY,
            **where,
        )
    return url


def _require_name(url: str, host: str, port: int) -> None:
    # Python takes every variable that ends with _PROXY for that of a scheme, YT_PROXY too.
    if select_proxy(url, get_environ_proxies(url)):
        # Another server resolves the name.
        return
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno not in _NO_SUCH_NAME:
            raise ClusterUnavailableError(
                f"The name {host} cannot be resolved now ({error.strerror})",
                remedy="Check the name, and whether this machine reaches a name server",
                proxy=url,
            ) from error
        raise ProxyNotFoundError(
            f"The name {host} does not resolve ({error.strerror})", remedy=_REMEDY, proxy=url
        ) from error


def _ask(url: str) -> requests.Response:
    return requests.get(f"{url}/api", timeout=_PATIENCE_SECONDS, allow_redirects=False)


def _lists_versions(answer: requests.Response) -> bool:
    try:
        return answer.status_code == _OK and "v4" in answer.json()
    except (ValueError, TypeError):
        return False
