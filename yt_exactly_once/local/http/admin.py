"""The admin pages of a proxy, under `/local/`: what a test asks of the cluster and no real one has.

Fault rules, the plan of what they have done, how many requests came, and the step that trims queues. All
answers are JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import structured
from yt_exactly_once.local.http.messages import Answer, Request, json_answer, not_found
from yt_exactly_once.local.proxy import Proxy
from yt_exactly_once.local.queues import trimming

PREFIX = "/local/"


class AdminPages:
    """The pages of one proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._pages: dict[tuple[str, str], Callable[[Request], Any]] = {
            ("GET", "/local/faults"): lambda _: proxy.faults.rules(),
            ("POST", "/local/faults"): self._add_faults,
            ("DELETE", "/local/faults"): lambda _: proxy.faults.clear(),
            ("GET", "/local/faults/plan"): lambda _: proxy.faults.plan(),
            ("GET", "/local/requests"): lambda _: dict(proxy.requests),
            ("POST", "/local/trim"): lambda _: trimming.trim_all(proxy.store),
        }

    def answer(self, request: Request, path: str) -> Answer:
        """Serve one page; raise `YtError` if the page cannot do what was asked."""
        page = self._pages.get((request.method, path))
        if page is None:
            return not_found(f'There is no {request.method} of "{request.path}"')
        return json_answer(page(request))

    def _add_faults(self, request: Request) -> dict[str, Any]:
        rules = structured.loads(
            request.body, structured.Format("json", {"encode_utf8": False}), ""
        )
        if not isinstance(rules, list):
            raise YtError("Fault rules must be a list of maps")
        return {"ids": self._proxy.faults.add(rules)}
