"""What a fact about YTsaurus is, and where facts are shown: one directory, over one backend of the client.

Everything is below that directory, and `remove` removes it. The directory also expires by itself, in case
the program is killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from yt_exactly_once import errors
from yt_exactly_once.codec.schema import SYSTEM_COLUMNS
from yt_exactly_once.commit.claims import CLAIMS_ATTRIBUTES, CLAIMS_SCHEMA
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.ytsaurus.browsing import attributes_of
from yt_exactly_once.ytsaurus.client import threads
from yt_exactly_once.ytsaurus.failures import codes_in, translated
from yt_exactly_once.ytsaurus.transaction import TabletTransaction

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection, Row

_EXPIRES_AFTER = timedelta(hours=1)
_LOOK_EVERY_SECONDS = 0.1
_CHANGE_SECONDS = 60

KEY = {"name": "k", "type": "string", "sort_order": "ascending", "required": True}
TEXT = {"name": "v", "type": "string"}
NUMBER = {"name": "n", "type": "int64"}
ANY = {"name": "x", "type": "any"}
TOTAL = {"name": "total", "type": "int64", "aggregate": "sum"}

CONFLICT = errors.ConflictError, 1700
"""How the cluster refuses the commit of a transaction that writes what another one has written."""


class Differs(Exception):  # noqa: N818 - an observation, no failure of the program
    """The cluster does something else. The text says what was seen."""


def expect(holds: object, seen: str) -> None:
    """Raise `Differs` with what was seen unless the condition holds."""
    if not holds:
        raise Differs(seen)


@dataclass(frozen=True)
class Patience:
    """How long the package itself would wait.

    Attributes:
        visible: until committed rows of an ordered table must appear.
        registered: until a proxy must know a registration.
        idle: how long a transaction is left alone that must survive it.
    """

    visible: timedelta = timedelta(seconds=20)
    registered: timedelta = timedelta(seconds=25)
    idle: timedelta = timedelta(seconds=5)


@dataclass
class Stage:
    """The tables of one run over one backend, below a directory that does not exist before `build`."""

    connection: Connection
    directory: str
    patience: Patience = Patience()
    _registrations: list[tuple[str, str]] = field(default_factory=list)

    @property
    def client(self) -> Any:
        """The client for everything outside of transactions."""
        return self.connection.reader

    def path(self, name: str) -> str:
        """Return the path of a table."""
        return f"{self.directory}/{name}"

    def build(self) -> None:
        """Create the directory and mount the tables."""
        tables: Mapping[str, tuple[Sequence[Row], int]] = {
            "rows": ([KEY, TEXT, NUMBER, ANY, TOTAL], 1),
            "log": ([TEXT, NUMBER, ANY], 1),
            "narrow": ([NUMBER], 1),
            "remounted": ([KEY, TEXT], 1),
            "remounted-log": ([TEXT], 1),
            "queue": ([TEXT, *SYSTEM_COLUMNS], 2),
            "trimmed": ([TEXT], 1),
        }
        with translated("create the tables", directory=self.directory):
            self.client.create(
                "map_node",
                self.directory,
                recursive=True,
                attributes={"expiration_timeout": int(_EXPIRES_AFTER.total_seconds() * 1000)},
            )
            for name, (schema, tablets) in tables.items():
                attributes = {"dynamic": True, "schema": schema, "tablet_count": tablets}
                self.client.create("table", self.path(name), attributes=attributes)
            claims = {"dynamic": True, "schema": CLAIMS_SCHEMA, **CLAIMS_ATTRIBUTES}
            self.client.create("table", self.path("claims"), attributes=claims)
            self.client.create("queue_consumer", self.path("consumer"))
            self.client.create("queue_consumer", self.path("stranger"))
            self.client.create("queue_producer", self.path("producer"))
        self.get("mounted", *tables, "claims", "consumer", "stranger", "producer")

    def get(self, state: Literal["mounted", "unmounted"], *names: str) -> None:
        """Get tables into a state, all at the same time, and wait until they are in it."""
        act = self.client.mount_table if state == "mounted" else self.client.unmount_table
        for path in map(self.path, names):
            with translated(f"get a table {state}", path=path):
                act(path)
        until = time.monotonic() + _CHANGE_SECONDS
        for path in map(self.path, names):
            while attributes_of(self.connection, path, ["tablet_state"]) != {"tablet_state": state}:
                if time.monotonic() > until:
                    raise errors.ClusterUnavailableError(
                        f"The table is not {state} after {_CHANGE_SECONDS} s",
                        remedy="Check the tablet cell bundle: yt get PATH/@tablet_cell_bundle, and yt get "
                        "//sys/tablet_cell_bundles/BUNDLE/@health",
                        path=path,
                    )
                time.sleep(_LOOK_EVERY_SECONDS)

    def remove(self) -> None:
        """Remove registrations and tables; the error of a refusal has the command to run by hand."""
        with translated("clean up", directory=self.directory):
            for queue, consumer in self._registrations:
                self.client.unregister_queue_consumer(queue, consumer)
            self.client.remove(self.directory, recursive=True, force=True)

    def register(self, queue: str, consumer: str) -> None:
        """Register a consumer as vital; `remove` takes it back."""
        self._registrations.append((queue, consumer))
        with translated("register the consumer", queue=queue, consumer=consumer):
            self.client.register_queue_consumer(queue, consumer, vital=True)

    @contextmanager
    def transaction(
        self, *senders: int, lease: timedelta = timedelta(seconds=30)
    ) -> Iterator[TabletTransaction]:
        """Yield a transaction of the package on the pinned proxy; abort what was not committed.

        Transactions that overlap need senders of their own.
        """
        pinned = self.connection.pinned()
        opened = [pinned.sender(number) for number in senders or (0,)]
        transaction = TabletTransaction.start(opened, threads("send"), lease, proxy=pinned.url)
        try:
            yield transaction
        finally:
            transaction.abort()

    def insert(self, name: str, *rows: Row) -> None:
        """Write rows outside of a transaction."""
        with translated("write rows", path=self.path(name)):
            self.client.insert_rows(self.path(name), list(rows))

    def delete(self, name: str, key: str) -> None:
        """Delete the row with this key `k` outside of a transaction."""
        with translated("delete rows", path=self.path(name)):
            self.client.delete_rows(self.path(name), [{"k": key}])

    def rows(self, name: str, *keys: str) -> list[Row | None]:
        """Return committed rows by their key `k`."""
        return self.connection.lookup(self.path(name), [{"k": key} for key in keys])

    def texts(self, name: str, partition: int = 0, offset: int = 0) -> list[str]:
        """Return the texts of an ordered table from an offset on, as they are visible now."""
        with translated("pull rows", path=self.path(name)):
            return [row["v"] for row in self.client.pull_queue(self.path(name), offset, partition)]

    def end(self, name: str, partition: int = 0) -> int:
        """Return the index the next row of an ordered table gets."""
        with translated("read the bounds", path=self.path(name)):
            (info,) = self.client.get_tablet_infos(self.path(name), [partition])["tablets"]
        return int(info["total_row_count"])

    def appears(self, name: str, *texts: str, partition: int = 0, offset: int = 0) -> float:
        """Wait until an ordered table ends with these texts; return the seconds, or raise `Differs`."""
        seen: list[str] = []

        def look() -> bool:
            seen[:] = self.texts(name, partition, offset)
            return seen == list(texts)

        return self.wait(look, lambda: f"the rows are {seen}, not {list(texts)}")

    def wait(
        self, look: Callable[[], bool], seen: Callable[[], str], patience: timedelta | None = None
    ) -> float:
        """Look again until it is so, and return the seconds; raise `Differs` with what was seen last."""
        began = time.monotonic()
        limit = (patience or self.patience.visible).total_seconds()
        while not look():
            if time.monotonic() - began > limit:
                raise Differs(f"{seen()}, after {limit:g} s")
            time.sleep(_LOOK_EVERY_SECONDS)
        return time.monotonic() - began

    @contextmanager
    def refuses(
        self, wanted: tuple[type[errors.ExactlyOnceError], int | None], but: str | None
    ) -> Iterator[list[int]]:
        """Check that what is done is refused as the package raises it, and with a code of the cluster.

        Yields a list that then gets all codes, outermost first. Raises `Differs` with `but` if it is
        accepted; with `None` it may be, and there are no codes.
        """
        kind, code = wanted
        codes: list[int] = []
        try:
            with translated("do what must be refused"):
                yield codes
        except errors.ExactlyOnceError as error:
            codes += codes_in(error)
            if isinstance(error, errors.TransientError) and not codes:
                # No answer: nothing was refused.
                raise
            if not isinstance(error, kind) or code not in {None, *codes}:
                expected = kind.__name__ if code is None else f"{kind.__name__} with {code}"
                raise Differs(
                    f"refused as {type(error).__name__} with the codes {codes}, expected {expected}: "
                    f"{error.what}"
                ) from error
        else:
            if but is not None:
                raise Differs(but)


Check = Callable[[Stage], "str | None"]

SOURCE = "source"
EVERY_MODE = tuple(DeliveryMode)
"""All delivery modes: each records its batches in one transaction with the offsets."""

FEATURES = (*EVERY_MODE, SOURCE)
"""What of the package depends on facts."""


@dataclass(frozen=True)
class Fact:
    """One behaviour of the cluster.

    Attributes:
        name: short and stable, for tickets.
        area: the group it is shown in.
        checked: what is done, and what must come out.
        meaning: what it means if it is different, for the features that depend on it.
        source: where YTsaurus decides it.
        check: raises `Differs`; returns what is worth telling besides.
    """

    name: str
    area: str
    checked: str
    features: tuple[str, ...]
    meaning: str
    source: str
    check: Check


class Facts(list[Fact]):
    """The facts of one area, in the order of their checks, with the features and the source of the area."""

    def __init__(self, area: str, *, features: tuple[str, ...], source: str) -> None:
        super().__init__()
        self._area, self._features, self._source = area, features, source

    def __call__(
        self, name: str, *, features: tuple[str, ...] = (), source: str = ""
    ) -> Callable[[Check], Check]:
        """Declare the function below as a fact.

        The first paragraph of its docstring says what is checked, and the second one what it means if it is
        different.
        """

        def declare(check: Check) -> Check:
            texts = (check.__doc__ or "\n\n").split("\n\n")
            checked, meaning = (" ".join(text.split()) for text in texts)
            known = features or self._features, meaning, source or self._source
            self.append(Fact(name, self._area, checked, *known, check))
            return check

        return declare
