"""Tables made for a frame, by function and by command: they fit it, and stay as they are."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import DecimalType, LongType, StringType, StructType

from tests.flows import columns, create_table
from tests.kinds import decimal, optional
from yt_exactly_once import cli, errors
from yt_exactly_once import create_table as make
from yt_exactly_once.codec.spark_types import parse_columns

FRAME = (
    StructType()
    .add("id", LongType(), nullable=False)
    .add("name", StringType())
    .add("price", DecimalType(10, 2))
)


@pytest.fixture
def create(cluster, tmp):
    """Create a table for a frame in a folder of its own."""

    def create(schema=FRAME, name="table", **options):
        return make(f"{tmp}/{name}", schema, proxy=cluster.proxy_urls[0], **options)

    return create


def test_table_for_a_frame_is_there_and_mounted(create, client, tmp):
    """Ordered unless it has keys; attributes are handed on."""
    assert create(tablet_count=3, attributes={"in_memory_mode": "compressed"})
    table = f"{tmp}/table"
    assert client.get(f"{table}/@tablet_state") == "mounted"
    assert client.get(f"{table}/@tablet_count") == 3
    assert client.get(f"{table}/@in_memory_mode") == "compressed"
    found = {column["name"]: column["type_v3"] for column in client.get(f"{table}/@schema")}
    assert found["id"] == "int64"
    assert found["name"] == optional("string")
    assert found["price"] == optional(decimal(10, 2))


@pytest.mark.parametrize("keys", [[], ["id"]], ids=["ordered", "sorted"])
def test_second_call_changes_nothing(create, client, tmp, keys):
    """Whoever comes first creates it; it is mounted when it is not, and keeps its rows and tablets."""
    assert create(key_columns=keys, tablet_count=2)
    table = f"{tmp}/table"
    client.insert_rows(table, [{"id": 1, "name": "a"}])
    client.unmount_table(table, sync=True)
    assert not create(key_columns=keys, tablet_count=5)
    assert client.get(f"{table}/@tablet_count") == 2
    assert [row["name"] for row in client.select_rows(f"name from [{table}]")] == ["a"]


def test_tablets_of_a_sorted_table_share_the_range_of_the_first_key(create, client, tmp):
    """Signed and unsigned numbers."""
    create(key_columns=["id"], tablet_count=4)
    assert client.get(f"{tmp}/table/@pivot_keys") == [[], [-(2**62)], [0], [2**62]]
    unsigned = columns({"hash": "uint64", "value": "int64"}, ["hash"])
    create(unsigned, "unsigned", key_columns=["hash"], tablet_count=2)
    assert client.get(f"{tmp}/unsigned/@pivot_keys") == [[], [2**63]]
    client.insert_rows(f"{tmp}/unsigned", [{"hash": 2**63 + 5, "value": 1}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_columns": ["name"], "tablet_count": 2}, "cannot be cut into 2 tablets"),
        ({"tablet_count": 0}, "tablet_count is 0"),
        ({"pivot_keys": [[]]}, "pivot_keys are for sorted tables"),
        ({"key_columns": ["id"], "tablet_count": 2, "pivot_keys": [[]]}, "pivot_keys are for"),
    ],
)
def test_impossible_shape_is_refused(create, client, tmp, options, message):
    """Before anything is created."""
    with pytest.raises(errors.ConfigError, match=message):
        create(**options)
    assert client.list(tmp) == []


def test_pivot_keys_cut_a_sorted_table_unless_the_cluster_refuses_them(create, client, tmp):
    """By any column. No table is left behind where only the cluster can tell."""
    with pytest.raises(errors.RequestRefusedError):
        create(key_columns=["id"], pivot_keys=[[], [7], [3]])
    assert client.list(tmp) == []
    create(key_columns=["name", "id"], pivot_keys=[[], ["m"], ["m", 7]])
    assert client.get(f"{tmp}/table/@pivot_keys") == [[], ["m"], ["m", 7]]


@pytest.mark.parametrize(
    ("there", "keys", "message"),
    [
        ({"id": "int64", "name": "utf8?", "price": "double?"}, [], "fit the table in one place"),
        ({"id": "int64", "name": "utf8?"}, [], "drop it from the DataFrame, or add it"),
        (
            {"id": "int64", "name": "utf8?", "price": "decimal"},
            ["id"],
            "the key id instead of no key",
        ),
    ],
)
def test_table_of_another_schema_is_refused_and_left_alone(
    create, client, tmp, there, keys, message
):
    """It is neither altered nor mounted."""
    table = f"{tmp}/table"
    there = columns(there, keys)
    for column in there:
        if column["type_v3"] == "decimal":
            column["type_v3"] = decimal(10, 2)
    client.create("table", table, attributes={"dynamic": True, "schema": there})
    with pytest.raises(errors.SchemaMismatchError, match=message):
        create()
    assert client.get(f"{table}/@tablet_state") == "unmounted"


def test_table_that_is_wider_than_the_frame_fits(create, client, tmp):
    """What takes null may be missing from the frame; computed and system columns are no matter."""
    wider = columns({"id": "int64", "name": "string?", "price": "utf8", "note": "yson?"})
    wider[2]["type_v3"] = optional(decimal(12, 2))
    create_table(client, f"{tmp}/table", [*wider, *columns({"$timestamp": "uint64"})])
    assert not create()


def test_something_else_at_the_path_is_refused(create, client, tmp):
    """A folder, or a static table."""
    client.create("map_node", f"{tmp}/folder")
    with pytest.raises(errors.TableNotFoundError, match="map_node, not a table"):
        create(name="folder")
    client.create("table", f"{tmp}/static")
    with pytest.raises(errors.TableNotDynamicError):
        create(name="static")


def command(cluster, capsys, *arguments):
    code = cli.main(["create-table", *arguments, "--proxy", cluster.proxy_urls[0]])
    return code, "".join(capsys.readouterr())


def test_command_creates_a_table_like_a_queue(cluster, client, capsys, tmp):
    """With the types of the queue; sorted by a key it has no columns that only queues have."""
    queue = columns({"id": "uint16", "at": "timestamp?", "$timestamp": "uint64"})
    create_table(client, f"{tmp}/queue", queue)
    arguments = [f"{tmp}/copy", "--like", f"{tmp}/queue", "--tablet-count", "4"]
    assert command(cluster, capsys, *arguments) == (0, f"created: {tmp}/copy\n")
    assert command(cluster, capsys, *arguments) == (0, f"exists and fits: {tmp}/copy\n")
    assert client.get(f"{tmp}/copy/@tablet_count") == 4
    assert [one["name"] for one in client.get(f"{tmp}/copy/@schema")] == ["id", "at", "$timestamp"]
    arguments[0] = f"{tmp}/sorted"
    assert command(cluster, capsys, *arguments, "--key", "id")[0] == 0
    assert client.get(f"{tmp}/sorted/@pivot_keys") == [[], [2**14], [2**15], [3 * 2**14]]
    assert [one["name"] for one in client.get(f"{tmp}/sorted/@schema")] == ["id", "at"]
    # And like that one, with its key.
    assert command(cluster, capsys, f"{tmp}/third", "--like", f"{tmp}/sorted")[0] == 0
    assert client.get(f"{tmp}/third/@key_columns") == ["id"]
    code, text = command(cluster, capsys, f"{tmp}/copy", "--like", f"{tmp}/queue", "--key", "id")
    assert code == 2
    assert "no key instead of the key id" in text


def test_command_creates_a_table_for_a_frame(cluster, client, capsys, tmp, tmp_path):
    """From JSON, from a file, and from a list of columns, all the same."""
    (tmp_path / "schema.json").write_text(FRAME.json())
    ddl = "id BIGINT NOT NULL, name STRING, price DECIMAL(10, 2)"
    for number, text in enumerate((FRAME.json(), f"@{tmp_path}/schema.json", ddl)):
        path = f"{tmp}/table-{number}"
        assert command(cluster, capsys, path, "--schema", text, "--key", "id")[0] == 0
        assert client.get(f"{path}/@schema") == client.get(f"{tmp}/table-0/@schema")


@pytest.mark.parametrize("text", ["id thing", "@/nowhere"])
def test_command_refuses_what_is_no_schema(cluster, client, capsys, tmp, text):
    """Saying what is one."""
    code, told = command(cluster, capsys, f"{tmp}/table", "--schema", text)
    assert code == 2
    assert "schema" in told
    assert client.list(tmp) == []


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)
PLAIN = """boolean tinyint byte smallint short int integer bigint long float real double string binary
    date timestamp timestamp_ltz timestamp_ntz void variant dec decimal(7) numeric(38,38) char(3)
    varchar(4)"""


def quoted(name):
    return "`" + name.replace("`", "``") + "`"


def columns_of(types, colon):
    """Return columns of such types, as a list or in a struct."""
    return st.tuples(
        NAMES.map(quoted),
        st.just(colon),
        types,
        st.sampled_from(["", " NOT NULL", " not null"]),
        st.sampled_from(["", " COMMENT 'a, b>'"]),
    ).map("".join)


TYPES = st.recursive(
    st.sampled_from(PLAIN.split()),
    lambda inner: st.one_of(
        inner.map("array<{}>".format),
        st.tuples(inner, inner).map(lambda pair: f"map< {pair[0]} ,{pair[1]}>"),
        st.lists(columns_of(inner, ":"), max_size=3).map(lambda some: f"STRUCT<{', '.join(some)}>"),
    ),
    max_leaves=5,
)
COLUMN = columns_of(TYPES, " ")


def without_metadata(kind):
    """Return a type of Spark's JSON without comments."""
    if isinstance(kind, list):
        return [without_metadata(one) for one in kind]
    if not isinstance(kind, dict):
        return kind
    return {name: without_metadata(one) for name, one in kind.items() if name != "metadata"}


@pytest.mark.nightly
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(columns=st.lists(COLUMN, min_size=1, max_size=4))
def test_list_of_columns_is_read_as_spark_reads_it(spark, columns):  # noqa: ARG001
    """Spark's own parser is the witness."""
    text = ", ".join(columns)
    assert parse_columns(text) == without_metadata(StructType.fromDDL(text).jsonValue())
