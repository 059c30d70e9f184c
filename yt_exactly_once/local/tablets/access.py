"""From the paths in a command to tables, with the errors of the real mount cache.

Owns the step between the tree and the layouts; it never looks at rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local.cypress import tree, ypath
from yt_exactly_once.local.cypress.layout import CLUSTER_NAME
from yt_exactly_once.local.cypress.view import Node, View
from yt_exactly_once.local.cypress.ypath import YPath
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables.layout import TableLayout, Tablet
from yt_exactly_once.local.tablets.catalog import load_layout

_CLUSTER_DOMAIN = ".yt.yandex.net"
"""Cluster names may be given in full; the real registration manager cuts this too."""


def open_table(connection: Connection, path: Any, what: str = "path") -> TableLayout:
    """Return the dynamic table at a path.

    Raises:
        YtError: 500 inside when there is nothing; code 1 when it is not a dynamic table.
    """
    parsed = ypath.parse(path, what)
    cluster = cluster_of(parsed)
    if cluster != CLUSTER_NAME:
        raise YtError(
            f'Queue cluster "{cluster}" was not found for path "{parsed.text}"; '
            f'the embedded cluster knows only itself, "{CLUSTER_NAME}"'
        )
    try:
        # What the tree keeps of the table is not needed here, and costs more than to find it.
        position = tree.reach(View(connection), parsed)
    except YtError as error:
        raise YtError(f"Error getting mount info for {parsed.text}", inner=[error]) from error
    return load_layout(connection, position.id, position.path)


def open_node(connection: Connection, path: Any) -> tuple[Node, TableLayout]:
    """Return the node of a dynamic table together with its layout."""
    layout = open_table(connection, path)
    return tree.node_at(View(connection), ypath.parse(f"#{layout.node_id}")), layout


def cluster_of(path: YPath) -> str:
    """Return the name of the cluster that a path is on."""
    return str(path.attributes.get("cluster", CLUSTER_NAME)).removesuffix(_CLUSTER_DOMAIN)


def check_has_cell(tablets: Iterable[Tablet]) -> None:
    """Refuse what a proxy asks a tablet cell for where the tablet has none; a plain error without a code.

    So `get_tablet_infos` and pulls, which take the cell from the mount cache and ask nobody else.
    """
    if any(tablet.state == "unmounted" for tablet in tablets):
        raise YtError("Unknown cell 0-0-0-0")


def check_readable(layout: TableLayout, tablets: Iterable[Tablet]) -> None:
    """Refuse reads from tablets of a table that are not mounted."""
    for tablet in tablets:
        if not tablet.is_readable:
            raise not_mounted(
                tablet,
                f"Cannot read from tablet {tablet.tablet_id} of table {layout.path} "
                f'while it is in "{tablet.state}" state',
            )


def not_mounted(tablet: Tablet, message: str) -> YtError:
    """Return the refusal of what a tablet does in another state only."""
    attributes = {"tablet_id": tablet.tablet_id, "is_tablet_unmounted": tablet.state == "unmounted"}
    return YtError(message, Code.TABLET_NOT_MOUNTED, attributes)


def tablet_at(layout: TableLayout, index: int) -> Tablet:
    """Return a tablet by its index."""
    if not 0 <= index < layout.tablet_count:
        raise YtError(
            f"Invalid tablet index for table {layout.path}: expected in range "
            f"[0,{layout.tablet_count - 1}], got {index}",
            Code.NO_SUCH_TABLET,
        )
    return layout.tablets[index]
