"""What people use otherwise, on the same machine: Delta Lake and PostgreSQL.

Both are written as their own documentation recommends for exactly-once from foreachBatch: the rows and
the number of the batch in one transaction. Each is skipped, with a line that says why, where its
package or its server is absent.
"""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyspark.sql.functions as sf

from benchmarks.modes.turns import Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from benchmarks.modes.work import Shape

_SERVER_PLACES = "/usr/lib/postgresql/*/bin"
_ACCOUNT = "postgres"
_SQL_TYPES = {"int64": "bigint", "double": "double precision", "utf8": "text"}


class AbsentError(Exception):
    """A peer cannot take part; the text says what to install."""


def delta(folder: Path, keys: Sequence[str] = ()) -> Writer:
    """Write into a Delta table through delta-rs.

    Args:
        folder: of the table.
        keys: columns by which rows replace earlier ones, with MERGE; without them rows are appended.

    Raises:
        AbsentError: the package is not installed.
    """
    try:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake  # noqa: PLC0415 - optional
    except ImportError:
        raise AbsentError("the package deltalake (extra `bench`) is not installed") from None
    application = "benchmark"

    def write(frame: DataFrame, batch_id: int) -> None:
        done = None
        if DeltaTable.is_deltatable(str(folder)):
            done = DeltaTable(str(folder)).transaction_version(application)
        if done is not None and done >= batch_id:
            return
        properties = CommitProperties(app_transactions=[Transaction(application, batch_id)])
        rows = frame.toArrow()
        if keys and done is not None:
            merge = DeltaTable(str(folder)).merge(
                rows,
                " and ".join(f"new.{key} = old.{key}" for key in keys),
                source_alias="new",
                target_alias="old",
                commit_properties=properties,
            )
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        else:
            write_deltalake(str(folder), rows, mode="append", commit_properties=properties)

    return Writer(write, count=lambda: int(DeltaTable(str(folder)).count()))


def merged(folder: Path, key: str, sequence: str, values: Sequence[str]) -> Writer:
    """Apply changes to a Delta table through delta-rs: of each key the newest, by MERGE.

    Args:
        folder: of the table.
        key: by which a change finds its row.
        sequence: orders the changes of a key; the table has it too.
        values: the other columns of the table. The column `op` of a change is `d` if it deletes.

    Raises:
        AbsentError: the package is not installed.
    """
    try:
        from deltalake import CommitProperties, DeltaTable, Transaction  # noqa: PLC0415 - optional
    except ImportError:
        raise AbsentError("the package deltalake (extra `bench`) is not installed") from None
    application, kept = "benchmark", (key, sequence, *values)

    def write(frame: DataFrame, batch_id: int) -> None:
        latest = (
            frame.groupBy(key)
            .agg(sf.max(sf.struct(sequence, "op", *values)).alias("latest"))
            .select(key, "latest.*")
        )
        rows = latest.toArrow()
        table = DeltaTable.create(
            str(folder), pa.schema([rows.schema.field(name) for name in kept]), mode="ignore"
        )
        done = table.transaction_version(application)
        if done is not None and done >= batch_id:
            return
        new = {name: f"new.{name}" for name in kept}
        is_newer = f"new.{sequence} > old.{sequence}"
        (
            table.merge(
                rows,
                f"new.{key} = old.{key}",
                source_alias="new",
                target_alias="old",
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(application, batch_id)]
                ),
            )
            .when_matched_delete(f"{is_newer} and new.op = 'd'")
            .when_matched_update(new, f"{is_newer} and new.op <> 'd'")
            .when_not_matched_insert(new, "new.op <> 'd'")
            .execute()
        )

    return Writer(write)


def postgres(folder: Path, shape: Shape) -> Writer:
    """Write into a PostgreSQL server that is started here and ends with the writer.

    Raises:
        AbsentError: the server or the package psycopg is not installed, or it does not start.
    """
    try:
        import psycopg  # noqa: PLC0415 - optional
    except ImportError:
        raise AbsentError("the package psycopg (extra `bench`) is not installed") from None
    server = _Server(folder)
    try:
        connection = psycopg.connect(server.address)
        _create_tables(connection, shape)
    except BaseException:
        server.stop()
        raise

    def write(frame: DataFrame, batch_id: int) -> None:
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute("select max(batch) from batches")
            done = cursor.fetchone()
            if done is not None and done[0] is not None and done[0] >= batch_id:
                return
            text = BytesIO()
            options = pyarrow.csv.WriteOptions(include_header=False)
            pyarrow.csv.write_csv(frame.toArrow(), text, options)
            with cursor.copy("copy target from stdin (format csv)") as copy:
                copy.write(text.getbuffer())
            cursor.execute("insert into batches values (%s)", (batch_id,))

    def count() -> int:
        with connection.transaction(), connection.cursor() as cursor:
            (found,) = cursor.execute("select count(*) from target").fetchone()
            return int(found)

    def close() -> None:
        connection.close()
        server.stop()

    return Writer(write, count=count, close=close)


def server_version() -> str:
    """Return which PostgreSQL server would be used."""
    try:
        tool = _tool("postgres")
    except AbsentError:
        return "absent"
    answer = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    return answer.stdout.strip()


def _create_tables(connection: Any, shape: Shape) -> None:
    columns = ", ".join(f'"{name}" {_SQL_TYPES[kind]}' for name, kind in shape.types.items())
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(f"create table target ({columns})")
        cursor.execute("create table batches (batch bigint primary key)")


class _Server:
    """A PostgreSQL server with its data in a folder, and its default settings."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._user = _account()
        if self._user:
            shutil.chown(folder, self._user)
        self._data = folder / "data"
        self._run(_tool("initdb"), "--auth=trust", "--username=benchmark", "-D", self._data)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = f"-p {port} -h 127.0.0.1 -k ''"
        self._run(
            _tool("pg_ctl"), "start", "-w", "-D", self._data, "-o", options, "-l", folder / "log"
        )
        self.address = f"host=127.0.0.1 port={port} user=benchmark dbname=postgres"

    def stop(self) -> None:
        """End the server."""
        self._run(_tool("pg_ctl"), "stop", "-m", "fast", "-D", self._data)

    def _run(self, *command: str | Path) -> None:
        # A file, as the server keeps what it is given open for as long as it lives.
        with tempfile.TemporaryFile("w+") as told:
            done = subprocess.run(
                command,
                check=False,
                user=self._user,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=told,
            )
            if done.returncode:
                told.seek(0)
                text = " ".join(told.read().split())
                raise AbsentError(f"{Path(command[0]).name} ended with {done.returncode}: {text}")


def _account() -> str | None:
    """Return the account the server must run under; `None` is ours. It refuses to run as root."""
    if getpass.getuser() != "root":
        return None
    try:
        return pwd.getpwnam(_ACCOUNT).pw_name
    except KeyError:
        raise AbsentError(
            "PostgreSQL does not run as root, and has no account of its own"
        ) from None


def _tool(name: str) -> str:
    places = [str(place) for place in sorted(Path("/").glob(_SERVER_PLACES[1:]), reverse=True)]
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *places]))
    if found is None:
        raise AbsentError("no PostgreSQL server (Debian: apt-get install postgresql)")
    return found
