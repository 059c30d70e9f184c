"""Table schemas, and frames against tables."""

import pickle

import pyarrow as pa
import pytest

from tests.kinds import decimal, listed, optional, struct
from yt_exactly_once.codec.growth import grown, unknown_columns
from yt_exactly_once.codec.scalars import SCALARS
from yt_exactly_once.codec.schema import (
    SERVICE_COLUMNS,
    SOURCE_COLUMNS,
    SOURCE_FIELDS,
    TableSchema,
    arrow_schema_of,
    check_frame,
    field_type,
    keyed,
    row_column,
    table_schema_for,
)
from yt_exactly_once.codec.types import OptionalType
from yt_exactly_once.errors import SchemaMismatchError


def column(name, type_v3="int64", **more):
    return {"name": name, "type_v3": type_v3, **more}


def checked(frame, *columns, is_sorted=False):
    table = TableSchema.from_yt(columns)
    return check_frame(pa.schema(frame), table, target="//t", sorted=is_sorted)


def refusal(frame, *columns, **more):
    with pytest.raises(SchemaMismatchError) as caught:
        checked(frame, *columns, **more)
    return str(caught.value)


def test_schema_tells_keys_from_values_and_what_may_be_written():
    """Computed columns and those the cluster fills are not writable."""
    table = TableSchema.from_yt(
        [
            column("hash", sort_order="ascending", expression="farm_hash(id)"),
            column("id", sort_order="descending"),
            column("value", optional("utf8")),
            column("$timestamp", "uint64"),
            column("$cumulative_data_weight"),
        ]
    )
    assert [one.name for one in table.key_columns] == ["hash", "id"]
    assert [one.name for one in table.writable_columns] == ["id", "value"]
    assert [one.nullable for one in table.writable_columns] == [False, True]


def test_fitting_frame_is_planned_in_the_order_of_the_table():
    """The plan has the columns both sides have, and survives pickling into a task."""
    plan = checked(
        {"b": pa.int64(), "a": pa.int64()},
        column("a"),
        column("unused", optional("int64")),
        column("b"),
    )
    assert plan.names == ("a", "b")
    assert plan.arrow_obstacles == {}
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_every_difference_is_told_at_once():
    """One run shows all that must change, side by side with what to do."""
    text = refusal(
        {"id": pa.int64(), "Name": pa.string(), "price": pa.float64(), "extra": pa.int8()},
        column("id", "int32"),
        column("name", optional("utf8")),
        column("price", decimal(10, 2)),
        column("must"),
        is_sorted=False,
    )
    lines = [[part.strip() for part in line.split("|")] for line in text.splitlines()]
    assert "5 places [target=//t]" in text
    assert ["column", "DataFrame", "table", "remedy"] in lines
    by_column = {line[0]: line[1:] for line in lines if len(line) == 4}
    assert by_column["id"][:2] == ["int64", "int32"]
    assert "narrower" in by_column["id"][2]
    assert by_column["Name"] == [
        "string",
        "-",
        "rename it to name: the table's names distinguish case",
    ]
    assert by_column["price"][2].startswith("cast it in the query: CAST(price AS DECIMAL(10, 2))")
    assert by_column["extra"][2] == (
        "rename it if it is name or must; else drop it from the DataFrame, or add it to the table"
    )
    assert by_column["must"][:2] == ["-", "int64"]


@pytest.mark.parametrize(
    ("frame", "columns", "is_sorted", "remedy"),
    [
        ({"v": pa.int64()}, [column("k", optional("int64"), sort_order="ascending"), column("v")],
         True, "add it to the DataFrame"),
        ({"k": pa.int64()}, [column("k", sort_order="ascending"), column("v", optional("int64"))],
         True, "a column besides the key"),
        ({"x": pa.int64()}, [column("v", optional("int64"))], False, "drop it from the DataFrame"),
        ({"v": pa.int64(), "h": pa.int64()}, [column("v"), column("h", expression="v + 1")],
         False, "the cluster fills it"),
        ({"s": pa.struct([("a", pa.int64())])}, [column("s", struct(a="int8"))], False,
         "at s.a: values may not fit int8"),
        ({"k": pa.int64(), "v": pa.int64(), "$ttl": pa.int64()},
         [column("k", sort_order="ascending"), column("v")], True, "create the table with it"),
        ({"v": pa.int64(), "$price": pa.int64()}, [column("v")], False, "rename or drop it"),
        # Which of two columns was meant cannot be known.
        ([("v", pa.int64()), ("v", pa.int64())], [column("v")], False, "drop the duplicate"),
        # A table of nullable columns does not take rows of nothing.
        (dict.fromkeys(SOURCE_COLUMNS, pa.int64()), [column("v", optional("int64"))], False,
         "a column of the table"),
    ],
)  # fmt: skip
def test_frame_that_does_not_fit_is_refused(frame, columns, is_sorted, remedy):
    """Each kind of difference has its remedy."""
    assert remedy in refusal(frame, *columns, is_sorted=is_sorted)


WEIGHT = "$cumulative_data_weight"


@pytest.mark.parametrize(
    ("more", "columns", "names"),
    [
        (SOURCE_COLUMNS, [], ()),
        (SOURCE_COLUMNS, [column(SOURCE_COLUMNS[1])], (SOURCE_COLUMNS[1],)),
        (["$timestamp", WEIGHT, "$tablet_index", "$row_index"], [], ()),
        (["$timestamp", WEIGHT], [column("$timestamp", "uint64"), column(WEIGHT, "uint64")], ()),
    ],
)
def test_columns_of_a_queue_are_left_out(more, columns, names):
    """A table may keep where a row came from. Of system columns it has its own, which the cluster fills."""
    frame = {"v": pa.int64(), **dict.fromkeys(more, pa.int64())}
    assert checked(frame, column("v"), *columns).names == ("v", *names)


def test_system_column_that_clients_may_write_is_written():
    """`$ttl` of a sorted table is one."""
    frame = {"k": pa.int64(), "v": pa.int64(), "$ttl": pa.uint64()}
    columns = [column("k", sort_order="ascending"), column("v"), column("$ttl", "uint64")]
    assert checked(frame, *columns, is_sorted=True).names == ("k", "v", "$ttl")


@pytest.mark.parametrize(
    ("description", "arrow", "reason"),
    [
        ("interval64", pa.duration("us"), "no proxy takes"),
        ("yson", pa.binary(), "bytes of any values as strings"),
        ({"type_name": "tagged", "tag": "t", "item": "yson"}, pa.int64(), "any values as strings"),
        (decimal(36, 2), pa.decimal128(36, 2), "as text"),
        (decimal(35, 2), pa.decimal128(35, 2), None),
    ],
)
def test_columns_that_some_proxies_store_wrongly_stand_in_the_way_of_arrow(
    description, arrow, reason
):
    """Such a column goes as YSON, unless it is inside a composite one: that is YSON in any case."""
    frame = {"a": arrow, "b": pa.list_(arrow)}
    columns = [column("a", optional(description)), column("b", listed(optional(description)))]
    found = checked(frame, *columns).arrow_obstacles
    assert list(found) == (["a"] if reason else [])
    assert reason is None or reason in found["a"]


def test_read_schema_remembers_what_the_columns_are():
    """A field knows its logical type and its name in a pulled row."""
    table = TableSchema.from_yt([column("at", optional("datetime")), column("id", "uint64")])
    schema = pa.schema([*SOURCE_FIELDS, *arrow_schema_of(table)])
    assert schema.field("at").type == pa.timestamp("us", "UTC")
    assert schema.field("at").nullable
    assert not schema.field("id").nullable
    assert field_type(schema.field("at")) == OptionalType(SCALARS["datetime"])
    assert [row_column(field) for field in schema] == ["$tablet_index", "$row_index", "at", "id"]
    assert field_type(pa.field("x", pa.int64(), nullable=False)) == SCALARS["int64"]


def test_strings_are_read_as_text_or_as_bytes():
    """`utf8` is text in either case."""
    table = TableSchema.from_yt([column("s", "string"), column("u", "utf8")])
    assert arrow_schema_of(table).types == [pa.string(), pa.string()]
    assert arrow_schema_of(table, binary_strings=True).types == [pa.binary(), pa.string()]


def test_table_for_a_frame_starts_with_its_keys():
    """And has no columns of the queue that was read. It is ready for a create command, and fits the frame."""
    frame = pa.schema(
        [
            pa.field("value", pa.timestamp("us", "UTC")),
            *(pa.field(name, pa.int64()) for name in (*SERVICE_COLUMNS, "$timestamp")),
            pa.field("id", pa.int64(), nullable=False),
        ]
    )
    description = table_schema_for(frame, ["id"])
    assert description == [
        {"name": "id", "type_v3": "int64", "sort_order": "ascending"},
        {"name": "value", "type_v3": optional("timestamp64")},
    ]
    table = TableSchema.from_yt(description)
    check_frame(frame, table, target="//t", sorted=True)


def test_table_with_another_key_keeps_its_types():
    """A sorted copy of a queue: the columns that only queues have are gone."""
    queue = [
        column("v", "uint8", expression="k + 1"),
        column("k", "utf8"),
        column("$timestamp", "uint64"),
    ]
    assert keyed(queue, ["k"]) == [column("k", "utf8", sort_order="ascending"), queue[0]]
    assert keyed(keyed(queue, ["k"]), []) == [queue[1], queue[0]]
    assert keyed(queue, []) == queue
    with pytest.raises(SchemaMismatchError, match="besides the key"):
        keyed(queue, ["k", "v"])


@pytest.mark.parametrize(
    ("kind", "keys", "told"),
    [
        (pa.int64(), ["id"], r"no column id.*Choose from: value"),
        (pa.time64("us"), [], r"time64.*column=value"),
    ],
)
def test_table_for_a_frame_that_cannot_be_is_refused(kind, keys, told):
    """The error names the key and what there is, or the column of a foreign type."""
    with pytest.raises(SchemaMismatchError, match=told):
        table_schema_for(pa.schema([("value", kind)]), keys)


def test_member_of_a_struct_that_differs_by_case_alone_is_not_added():
    """Spark could read neither of the two, and the rows of before would keep the old one."""
    there = [column("s", optional(struct(b=optional("int64"))))]
    frame = pa.schema([("s", pa.struct([("B", pa.int64())]))])
    assert grown(frame, there) == there
    with pytest.raises(SchemaMismatchError, match="B"):
        check_frame(frame, TableSchema.from_yt(there), target="//t", sorted=False)
    more = pa.schema([("s", pa.struct([("c", pa.int64())]))])
    assert grown(more, there) == [
        column("s", optional(struct(b=optional("int64"), c=optional("int64"))))
    ]


def test_column_of_the_cluster_is_not_added():
    """No cluster lets anybody add such a column: the sink refuses it, or ignores it on request."""
    there, frame = [column("v")], pa.schema([("v", pa.int64()), ("$ttl", pa.int64())])
    assert grown(frame, there) == there
    assert unknown_columns(frame, there) == ["$ttl"]
