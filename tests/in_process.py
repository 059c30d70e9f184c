"""Commands of a proxy in this process, without HTTP."""

from pathlib import Path
from typing import Any

from yt_exactly_once.local import commands
from yt_exactly_once.local.commands.registry import REGISTRY, Context, Rows
from yt_exactly_once.local.proxy import Proxy


class Commands:
    """A proxy whose commands are calls."""

    def __init__(self, folder: Path, **features: Any) -> None:
        assert commands.VERSION
        self.proxy = Proxy(folder, "127.0.0.1:1", features=features)

    def __call__(
        self, command: str, rows: Any = (), /, *, value: Any = None, **parameters: Any
    ) -> Any:
        answer = self._answer(command, rows, value, parameters)
        return list(answer.rows) if isinstance(answer, Rows) else answer

    def stored(self, command: str, **parameters: Any) -> Any:
        """Return rows as they are stored, before they are written in a format."""
        return self._answer(command, (), None, parameters).rows

    def _answer(self, command: str, rows: Any, value: Any, parameters: dict[str, Any]) -> Any:
        context = Context(self.proxy, command, parameters)
        context.read_rows = lambda _schema=None, /: list(rows)
        context.read_value = lambda: value
        return REGISTRY[command].handler(context)

    def table(self, path: str, schema: list[dict[str, Any]], **attributes: Any) -> str:
        """Create and mount a dynamic table; return its id."""
        attributes = {"dynamic": True, "schema": schema, **attributes}
        made = self("create", type="table", path=path, attributes=attributes)
        self("mount_table", path=path)
        return str(made["node_id"])

    def close(self) -> None:
        self.proxy.transactions.close()
        self.proxy.close()
