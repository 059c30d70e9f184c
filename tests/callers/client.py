"""A client for the cluster in memory, in the place of `YtClient`: everything above it is the real code."""

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Self

from yt import yson
from yt.common import YtError

from tests.callers.mishaps import Request
from tests.callers.server import PRODUCER_SCHEMA, Row, Server, Table, Write
from yt_exactly_once.ytsaurus.sender import Sender

_ZOMBIE_EPOCH = 3102


class Client:
    """What the package uses of `YtClient`, and of the sender over it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.client = self
        self.config = {"backend": None}

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        """Be all clients of the server."""
        return self

    look_up = Sender.look_up

    def send(self, command: str, parameters: Row, body: bytes | memoryview | None = None) -> bytes:
        """Do what a command asks for, and answer in YSON."""
        inside = parameters.get("transaction_id")
        answer = getattr(self, f"_{command}")(parameters, body, inside)
        kind = "list_fragment" if command == "lookup_rows" else "node"
        return bytes(yson.dumps(answer, yson_type=kind))

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

    # Transactions

    def _start_transaction(self, *_sent: Any) -> Row:
        with self._server.request(Request.BEGIN):
            return {"transaction_id": self._server.begin()}

    def _commit_transaction(self, _parameters: Row, _body: None, transaction: str) -> None:
        with self._server.request(Request.COMMIT):
            self._server.commit(transaction)

    def _abort_transaction(self, _parameters: Row, _body: None, transaction: str) -> None:
        with self._server.request():
            self._server.transactions.pop(transaction, None)

    # Rows

    def _lookup_rows(self, parameters: Row, body: bytes, inside: str | None) -> list[Row | None]:
        path = parameters["path"]
        with self._server.request():
            table = self._server.find(path)
            rows = table.rows
            if inside:
                rows = self._server.transaction(inside).rows.get(path, {})
            keys = self._server.decoded(body, parameters["input_format"])
            return [rows.get(table.key(key), (0, None))[1] for key in keys]

    def _insert_rows(self, parameters: Row, body: bytes, inside: str | None) -> None:
        self._write(parameters, body, inside, update=bool(parameters.get("update")))

    def _delete_rows(self, parameters: Row, body: bytes, inside: str | None) -> None:
        self._write(parameters, body, inside, deletes=True)

    def _write(self, parameters: Row, body: bytes, inside: str | None, **how: bool) -> None:
        rows = self._server.decoded(body, parameters["input_format"])
        writes = [Write(parameters["path"], row, **how) for row in rows]
        with self._server.request(None if inside else Request.INSERT):
            if inside:
                self._server.transaction(inside).writes.extend(writes)
            else:
                self._server.apply(writes)

    # Queue producers

    def _create_queue_producer_session(self, parameters: Row, *_sent: Any) -> Row:
        producer, session_id = parameters["producer_path"], parameters["session_id"]
        with self._server.request(Request.SESSION):
            table = self._server.find(producer)
            before = self._session(table, session_id)
            after = {**before, "epoch": before["epoch"] + 1}
            self._server.apply([Write(producer, after)])
            return {**after, "user_meta": _copied(after["user_meta"])}

    def _push_queue_producer(self, parameters: Row, body: bytes, _inside: None) -> Row:
        producer, queue = parameters["producer_path"], parameters["queue_path"]
        rows = self._server.decoded(body, parameters["input_format"])
        with self._server.request(Request.PUSH):
            table = self._server.find(producer)
            session = self._session(table, parameters["session_id"])
            if parameters["epoch"] != session["epoch"]:
                message = "The session has another epoch"
                raise YtError(message, code=_ZOMBIE_EPOCH)
            last = session["sequence_number"]
            fresh = [row for row in rows if row["$sequence_number"] > last]
            after = dict(session)
            if fresh:
                after["sequence_number"] = fresh[-1]["$sequence_number"]
                after["user_meta"] = _copied(parameters["user_meta"])
            self._server.apply([*(Write(queue, row) for row in fresh), Write(producer, after)])
            return {
                "last_sequence_number": after["sequence_number"],
                "skipped_row_count": len(rows) - len(fresh),
            }

    @staticmethod
    def _session(table: Table, session_id: str) -> Row:
        fresh = {"session_id": session_id, "epoch": -1, "sequence_number": -1, "user_meta": None}
        return table.rows.get((session_id,), (0, None))[1] or fresh


def _copied(value: Any) -> Any:
    """Return what a reader gets back: nothing but plain values travels."""
    return json.loads(json.dumps(value))
