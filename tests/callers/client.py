"""A client for the cluster in memory, in the place of `YtClient`: everything above it is the real code."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from yt.common import YtError

from tests.callers.mishaps import Request
from tests.callers.server import PRODUCER_SCHEMA, Row, Server, Table, Write

_ZOMBIE_EPOCH = 3102


class Client:
    """What the package uses of `YtClient`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._joined: list[str] = []

    # Cypress

    def exists(self, path: str) -> bool:
        with self._server.request():
            return path in self._server.tables

    def get(self, path: str, attributes: Any = None, max_size: int | None = None) -> Any:  # noqa: ARG002
        node, _, name = path.partition("/@")
        with self._server.request():
            if node == "//sys":
                return "model"
            table = self._server.find(node)
            described = {
                "type": "table",
                "id": table.id,
                "dynamic": True,
                "sorted": bool(table.keys),
                "tablet_count": table.tablet_count,
                "tablet_state": "mounted",
                "schema": table.schema,
                "treat_as_queue_consumer": table.kind == "queue_consumer",
                **table.attributes,
            }
            if attributes is not None:
                return SimpleNamespace(
                    attributes={name: described[name] for name in attributes if name in described}
                )
            return described[name] if name else described

    def execute_batch(self, requests: list[Any]) -> Any:
        return {"results": [{"output": self.get(one["parameters"]["path"])} for one in requests]}

    def set(self, path: str, value: Any) -> None:
        node, _, name = path.partition("/@")
        with self._server.request():
            self._server.find(node).attributes[name] = _copied(value)

    def create(self, kind: str, path: str, attributes: Any = None, **_options: Any) -> None:
        with self._server.request(Request.CREATE):
            schema = PRODUCER_SCHEMA if kind == "queue_producer" else attributes["schema"]
            if path not in self._server.tables:
                self._server.create(kind, path, schema)

    def mount_table(self, _path: str, **_options: Any) -> None:
        raise AssertionError("Tables are mounted when they are created")

    def list_queue_consumer_registrations(self, **_options: Any) -> list[Any]:
        return [SimpleNamespace()]

    # Transactions

    def start_transaction(self, **_options: Any) -> str:
        with self._server.request(Request.BEGIN):
            if self._joined:
                # It would be nested, and no transaction of Cypress has that id.
                self._server.transaction("//" + self._joined[-1])
            return self._server.begin()

    @contextmanager
    def Transaction(self, *, transaction_id: str, **_options: Any) -> Iterator[None]:  # noqa: N802
        self._joined.append(transaction_id)
        try:
            yield
        finally:
            self._joined.remove(transaction_id)

    def commit_transaction(self, transaction: str) -> None:
        with self._server.request(Request.COMMIT):
            self._server.commit(transaction)

    def abort_transaction(self, transaction: str) -> None:
        with self._server.request():
            self._server.transactions.pop(transaction, None)

    # Rows

    def lookup_rows(self, path: str, keys: list[Row], **_options: Any) -> Iterator[Row | None]:
        with self._server.request():
            table = self._server.find(path)
            rows = table.rows
            if self._joined:
                rows = self._server.transaction(self._joined[-1]).rows.get(path, {})
            found = [rows.get(table.key(key), (0, None))[1] for key in keys]
        return iter([None if row is None else dict(row) for row in found])

    def select_rows(self, query: str, **_options: Any) -> Iterator[Row]:
        with self._server.request():
            path = re.search(r"from \[([^]]+)\]", query)
            prefix = re.search(r'is_prefix\("([^"]*)", (\w+)\)', query)
            assert path is not None, query
            rows = self._server.find(path[1]).all_rows()
            if prefix is not None:
                begins = prefix[1].encode().decode("unicode_escape")
                rows = [row for row in rows if row[prefix[2]].startswith(begins)]
        return iter([dict(row) for row in rows])

    def get_tablet_infos(self, path: str, tablets: list[int]) -> Row:
        with self._server.request():
            rows = self._server.find(path).tablets
            return {"tablets": [{"total_row_count": len(rows.get(each, ()))} for each in tablets]}

    def insert_rows(
        self,
        path: str,
        body: Any,
        *,
        format: Any,  # noqa: A002 - the interface
        raw: bool = False,
        **options: Any,
    ) -> None:
        rows = self._server.decoded(body, format) if raw else _plain(body)
        update = bool(options.get("update"))
        self._write([Write(path, row, update=update) for row in rows])

    def delete_rows(self, path: str, body: Any, *, format: Any, raw: bool = False) -> None:  # noqa: A002 - the interface
        rows = self._server.decoded(body, format) if raw else _plain(body)
        self._write([Write(path, row, deletes=True) for row in rows])

    def _write(self, writes: list[Write]) -> None:
        if self._joined:
            with self._server.request():
                self._server.transaction(self._joined[-1]).writes.extend(writes)
            return
        with self._server.request(Request.INSERT):
            self._server.apply(writes)

    # Queue producers

    def create_queue_producer_session(
        self, producer: str, _queue: str, session_id: str, **options: Any
    ) -> Row:
        with self._server.request(Request.SESSION):
            table = self._server.find(producer)
            before = self._session(table, session_id)
            after = {**before, "epoch": before["epoch"] + 1}
            if options.get("user_meta") is not None:
                after["user_meta"] = _copied(options["user_meta"])
            self._server.apply([Write(producer, after)])
            return {**after, "user_meta": _copied(after["user_meta"])}

    def push_queue_producer(
        self,
        producer: str,
        queue: str,
        session_id: str,
        epoch: int,
        body: Any,
        *,
        user_meta: Any = None,
        input_format: Any = None,
        **_options: Any,
    ) -> Row:
        rows = self._server.decoded(body, input_format)
        with self._server.request(Request.PUSH):
            table = self._server.find(producer)
            session = self._session(table, session_id)
            if epoch != session["epoch"]:
                message = "The session has another epoch"
                raise YtError(message, code=_ZOMBIE_EPOCH)
            last = session["sequence_number"]
            fresh = [row for row in rows if row["$sequence_number"] > last]
            after = dict(session)
            if fresh:
                after["sequence_number"] = fresh[-1]["$sequence_number"]
            if fresh and user_meta is not None:
                after["user_meta"] = _copied(user_meta)
            self._server.apply([*(Write(queue, row) for row in fresh), Write(producer, after)])
            return {
                "last_sequence_number": after["sequence_number"],
                "skipped_row_count": len(rows) - len(fresh),
            }

    @staticmethod
    def _session(table: Table, session_id: str) -> Row:
        fresh = {"session_id": session_id, "epoch": -1, "sequence_number": -1, "user_meta": None}
        return table.rows.get((session_id,), (0, None))[1] or fresh


def _plain(rows: list[Row]) -> list[Row]:
    return [{name: _copied(value) for name, value in row.items()} for row in rows]


def _copied(value: Any) -> Any:
    """Return what a reader gets back: nothing but plain values travels."""
    return json.loads(json.dumps(value))
