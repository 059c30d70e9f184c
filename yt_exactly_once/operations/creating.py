"""Creating what a pipeline needs: tables that fit a DataFrame, queues, consumers, and what a sink keeps.

A second call changes nothing. What exists and does not fit is an error; it is never altered. Neither Spark
nor Java is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

import pyarrow as pa

from yt_exactly_once.codec import schema as schemas
from yt_exactly_once.codec import spark_types
from yt_exactly_once.codec.rejects import REJECT_SCHEMA
from yt_exactly_once.codec.schema import SYSTEM_COLUMNS
from yt_exactly_once.commit.claims import CLAIMS_ATTRIBUTES, CLAIMS_SCHEMA
from yt_exactly_once.commit.entry import LEDGER_VERSION
from yt_exactly_once.commit.ledger import LEDGER_MARK, LEDGER_SCHEMA
from yt_exactly_once.config import Changes, check_path
from yt_exactly_once.errors import ConfigError, SchemaMismatchError, TableError, TableNotFoundError
from yt_exactly_once.spark.sink.tablets import tablets_of
from yt_exactly_once.ytsaurus import tables
from yt_exactly_once.ytsaurus.browsing import attributes_of, registration, user_of
from yt_exactly_once.ytsaurus.client import ClusterArguments, Connection
from yt_exactly_once.ytsaurus.queues import RemoteQueue, register_consumer
from yt_exactly_once.ytsaurus.tombstones import ensure_tombstones, tombstones_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from yt_exactly_once.operations.doctor.subject import Subject

    Columns: TypeAlias = StructType | pa.Schema | Sequence[Mapping[str, Any]] | str
    """What a table is made for."""

ORIGIN_COLUMNS: tuple[dict[str, Any], ...] = (
    {"name": schemas.SOURCE_TABLET_COLUMN, "type": "int64"},
    {"name": schemas.SOURCE_ROW_COLUMN, "type": "int64"},
    {"name": schemas.SOURCE_QUEUE_COLUMN, "type": "utf8"},
)
"""Columns that say where a row came from; an audit by source needs them."""


def create_table(
    path: str,
    schema: Columns,
    *,
    key_columns: Sequence[str] = (),
    tablet_count: int | None = None,
    pivot_keys: Sequence[Sequence[Any]] | None = None,
    attributes: Mapping[str, Any] | None = None,
    extra_columns: Sequence[Mapping[str, Any]] = (),
    changes: Changes | None = None,
    **cluster: Unpack[ClusterArguments],
) -> bool:
    """Create and mount a dynamic table that takes every row of a DataFrame.

    A table that exists is mounted if necessary, and otherwise left as it is. The DataFrame must fit it, and
    its key must be the same. Service columns of a source do not become columns of the table.

    Args:
        path: where; missing parents are created.
        schema: `df.schema`, the same as Arrow, its JSON, or columns: in the DDL of Spark, such as
            `"id bigint NOT NULL, tags array<string>"`, or as in the `@schema` of another table.
        key_columns: key of a sorted table, in its order; without it the table is ordered.
        tablet_count: number of tablets. Those of a sorted table share the range of its first key column
            evenly, which must then be of an integer type.
        pivot_keys: first keys of the tablets of a sorted table, beginning with `[]`.
        attributes: further attributes, such as `tablet_cell_bundle` or `primary_medium`.
        extra_columns: further columns of the table, as in a `@schema`; those that it has are left out.
        changes: what the rows are to the sink. Its operation is no column; its tombstones are created too.
        **cluster: `proxy`, `token` and `client_config`; default: `YT_PROXY` and `YT_TOKEN`.

    Returns:
        Whether this call created the table.

    Raises:
        ConfigError: an argument is impossible.
        SchemaMismatchError: a column has no counterpart, a key column is missing, or the table exists
            and does not fit.
        TableError: there is something else at the path, or a static table.
    """
    columns: list[dict[str, Any]]
    if isinstance(schema, str):
        schema = spark_types.parse_schema(schema)
    if isinstance(schema, pa.Schema):
        frame = schema
        columns = schemas.table_schema_for(frame, key_columns)
    elif hasattr(schema, "jsonValue"):
        frame = spark_types.arrow_schema_from(spark_types.as_written(schema.jsonValue()))
        columns = schemas.table_schema_for(frame, key_columns)
    else:
        columns = schemas.keyed(schema, key_columns)
        writable = schemas.TableSchema(schemas.TableSchema.from_yt(columns).writable_columns)
        frame = schemas.arrow_schema_of(writable, binary_strings=True)
    check_path(path, "path")
    if changes is not None:
        columns, frame = _without_operation(changes, columns, frame, path)
    names = {column["name"] for column in columns}
    columns += [dict(column) for column in extra_columns if column["name"] not in names]
    shape = tablets_of(path, columns, tablet_count, pivot_keys)
    connection = Connection.to(**cluster)
    created = False
    try:
        _require_fit(tables.describe_table(connection, path), columns, frame)
    except TableNotFoundError:
        created = tables.ensure_table(connection, path, columns, {**(attributes or {}), **shape})
        # Another client may have been faster.
        _require_fit(tables.describe_table(connection, path), columns, frame)
    else:
        tables.ensure_table(connection, path, columns, {})
    if changes is not None:
        ensure_tombstones(connection, path, changes)
    return created


def _without_operation(
    changes: Changes, columns: Sequence[dict[str, Any]], frame: pa.Schema, path: str
) -> tuple[list[dict[str, Any]], pa.Schema]:
    """Return the columns of a table for changes; raise `ConfigError` if it would have no sequence."""
    values = [column["name"] for column in columns if not column.get("sort_order")]
    if len(values) == len(columns):
        raise ConfigError(
            "changes need a sorted table", remedy="Give key_columns: the key of a row", path=path
        )
    if missing := [name for name in changes.sequence if name not in values]:
        raise ConfigError(
            f"sequence of changes names {missing[0]}, which is no value of the table",
            remedy=f"Choose from: {', '.join(values)}",
            path=path,
        )
    kept = [field for field in frame if field.name != changes.operation]
    left = [column for column in columns if column["name"] != changes.operation]
    return left, pa.schema(kept)


def schema_like(connection: Connection, path: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return columns and key of a dynamic table; raise `TableError` if there is none, or it is static."""
    check_path(path, "path")
    info = tables.describe_table(connection, path)
    return info.schema, [column["name"] for column in info.schema if column.get("sort_order")]


def parse_schema(text: str) -> pa.Schema:
    """Return the schema of a DataFrame, given as JSON or DDL, or as `@` and a file of either."""
    if not text.startswith("@"):
        return spark_types.parse_schema(text)
    try:
        text = Path(text[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"The file with the schema cannot be read: {error.strerror}",
            remedy="Check its path",
            path=text[1:],
        ) from error
    return spark_types.parse_schema(text)


def _require_fit(
    info: tables.TableInfo, columns: Sequence[Mapping[str, Any]], frame: pa.Schema
) -> None:
    have, want = schemas.TableSchema.from_yt(info.schema), schemas.TableSchema.from_yt(columns)
    keys = [column.name for column in have.key_columns if column.writable]
    wanted = [column.name for column in want.key_columns if column.writable]
    if keys != wanted:
        raise SchemaMismatchError(
            f"The table exists, with {_named(keys)} instead of {_named(wanted)}",
            remedy="Choose another path or the same key; a table is never altered here",
            path=info.path,
        )
    schemas.check_frame(frame, have, target=info.path, sorted=info.is_sorted)


def _named(keys: Sequence[str]) -> str:
    return f"the key {', '.join(keys)}" if keys else "no key"


def create_queue(
    path: str,
    schema: Columns,
    *,
    tablet_count: int = 1,
    auto_trim: bool = False,
    **cluster: Unpack[ClusterArguments],
) -> bool:
    """Create and mount a queue: an ordered dynamic table with the time and the size of its rows.

    A queue that exists and fits stays as it is. One that does not fit, or has another number of tablets,
    is an error, as for `create_table`.

    Args:
        path: where; missing parents are created.
        schema: see `create_table`; its key, if it has one, is left out.
        tablet_count: number of tablets, which are the partitions of the queue.
        auto_trim: let the cluster trim the rows that all vital consumers have read.
        **cluster: `proxy`, `token` and `client_config`; default: `YT_PROXY` and `YT_TOKEN`.

    Returns:
        Whether this call created the queue.

    Raises:
        ConfigError: an argument is impossible, or the queue exists with another number of tablets.
        SchemaMismatchError: a column has no counterpart, or the queue exists and does not fit.
        TableError: there is something else at the path, or a static table.
    """
    connection = Connection.to(**cluster)
    attributes = {"auto_trim_config": {"enable": True}} if auto_trim else {}
    created = create_table(
        path,
        schema,
        tablet_count=tablet_count,
        attributes=attributes,
        extra_columns=SYSTEM_COLUMNS,
        connection=connection,
    )
    if created:
        return True
    found = RemoteQueue(connection, path).describe().tablet_count
    if found != tablet_count:
        raise ConfigError(
            f"The queue exists with {found} tablets instead of {tablet_count}",
            remedy=f"Give {found} as tablet_count, or choose another path",
            path=path,
        )
    return False


def create_consumer(
    path: str, queue: str, *, vital: bool = True, **cluster: Unpack[ClusterArguments]
) -> bool:
    """Create and mount a consumer, and register it for a queue.

    A consumer that exists stays where it is. A registration with another `vital` is changed. Proxies learn of
    a registration within 25 s.

    Args:
        path: of the consumer; missing parents are created.
        queue: path of a queue that exists.
        vital: whether the queue must keep rows until the consumer has passed them.
        **cluster: `proxy`, `token` and `client_config`; default: `YT_PROXY` and `YT_TOKEN`.

    Returns:
        Whether this call changed anything.

    Raises:
        ConfigError: a path is malformed.
        TableError: there is no queue, or something else than a consumer at the path.
    """
    return any(ensure_consumer(Connection.to(**cluster), path, queue, vital=vital))


def ensure_consumer(
    connection: Connection, path: str, queue: str, *, vital: bool
) -> tuple[bool, bool]:
    """Do the same; return whether this call created the consumer, and whether it registered it."""
    check_path(path, "path")
    RemoteQueue(connection, queue).describe()
    found = attributes_of(connection, path, ["treat_as_queue_consumer"])
    if found is not None and not found.get("treat_as_queue_consumer"):
        raise TableError(
            "There is something at the path that is no consumer",
            remedy="Choose another path",
            path=path,
        )
    tables.ensure_object(connection, "queue_consumer", path)
    known = registration(connection, queue, path)
    if known is not None and bool(known["vital"]) == vital:
        return found is None, False
    register_consumer(connection, queue, path, vital=vital)
    return found is None, True


def create_own_tables(
    connection: Connection,
    subject: Subject,
    *,
    writers: Sequence[str],
    readers: Sequence[str] = (),
    operators: Sequence[str] = (),
) -> dict[str, bool]:
    """Create and mount the tables that a sink keeps; one that is there only gets the rights.

    Whoever may write the ledger can make a sink skip a batch, so these tables inherit no rights. What each
    right is for is in docs/security.md.

    Args:
        subject: its targets, its mode and the paths of the tables.
        writers: users and groups that run the query.
        readers: they look at it: `status`, `audit`.
        operators: they mount, repair and remove the tables, and change these rights; default: the user of
            the token, since who creates a table does not own it, and has to mount it.

    Returns:
        Path of each table, and whether this call created it.
    """
    acl = [
        {"action": "allow", "subjects": list(subjects), "permissions": permissions.split()}
        for subjects, permissions in (
            (writers, "read write"),
            (readers, "read"),
            (operators or [user_of(connection)], "read write mount remove administer"),
        )
        if subjects
    ]
    rights = {"acl": acl, "inherit_acl": False}
    marked = {**rights, LEDGER_MARK: LEDGER_VERSION}
    created = {}
    for name, path in subject.kept.items():
        if name == "producer table":
            created[path] = tables.ensure_object(connection, "queue_producer", path, rights)
        elif name == "ledger":
            created[path] = tables.ensure_table(connection, path, LEDGER_SCHEMA, marked)
        else:
            created[path] = tables.ensure_table(connection, path, REJECT_SCHEMA, rights)
    if subject.claims is not None:
        expiring = {**rights, **CLAIMS_ATTRIBUTES}
        created[subject.claims] = tables.ensure_table(
            connection, subject.claims, CLAIMS_SCHEMA, expiring
        )
    if subject.changes is not None:
        for target in subject.targets:
            is_new = ensure_tombstones(connection, target, subject.changes, rights)
            created[tombstones_of(target)] = is_new
    for path in (path for path, is_new in created.items() if not is_new):
        for attribute, value in rights.items():
            tables.set_attribute(connection, path, attribute, value)
    return created
