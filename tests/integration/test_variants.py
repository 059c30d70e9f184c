"""Variants are written as their JSON, or as YSON into `any`; from the driver and from tasks."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import types
from yt.wrapper import YsonFormat

from tests.integration.streams import QUICK, TO_THE_END, finish
from yt_exactly_once import TransactionalSink, create_table, register_source

pytestmark = [
    pytest.mark.further,
    pytest.mark.skipif(not hasattr(types, "VariantType"), reason="variants begin with PySpark 4.0"),
]

TEXTS = ['{"a":[1,2.5,"é"],"b":null}', '"text"', "null", "12345678901234567890"]
VALUES = [
    {b"a": [1, 2.5, "é".encode()], b"b": None},
    b"text",
    None,
    12345678901234567890,
]  # fmt: skip
COLUMNS = {"any": "any", "json": "json", "utf8": "utf8", "string": "string"}


@pytest.fixture
def variants(spark, tmp_path):
    """A stream of variants, the same in several columns."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "rows.txt").write_text("\n".join([*TEXTS, "none"]))
    parsed = "parse_json(nullif(value, 'none'))"
    return spark.readStream.text(str(folder)).selectExpr(
        "value as text", *(f"{parsed} as `{name}`" for name in COLUMNS)
    )


def run(writer, tmp_path):
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    finish(writer.trigger(**TO_THE_END).start())


@pytest.mark.parametrize("sent_by", ["driver", "tasks"])
def test_variants_are_written(spark, cluster, client, tmp, variants, tmp_path, sent_by):
    """And one from a column json is the same when it is read and parsed."""
    path, proxy = f"{tmp}/variants", cluster.proxy_urls[0]
    columns = [{"name": "text", "type": "string"}]
    columns += [{"name": name, "type": kind} for name, kind in COLUMNS.items()]
    create_table(path, columns, proxy=proxy)
    sink = TransactionalSink(path, proxy=proxy, retry=QUICK, sent_by=sent_by)
    sink.check(variants)
    run(variants.writeStream.foreachBatch(sink), tmp_path)
    rows = list(client.select_rows(f"* from [{path}]", format=YsonFormat(encoding=None)))
    found = {row[b"text"].decode(): row for row in rows}
    assert [found[text][b"any"] for text in TEXTS] == VALUES
    assert {found[text][name] for text in TEXTS for name in (b"json", b"utf8", b"string")} == {
        text.encode() for text in TEXTS
    }
    assert {found["none"][name.encode()] for name in COLUMNS} == {None}
    register_source(spark)
    stored = spark.read.format("yt").option("proxy", proxy).option("any_json", True).load(path)
    # The null of JSON is the null of the column.
    assert stored.where("to_json(parse_json(`any`)) = text").count() == len(TEXTS) - 1
    same = stored.where("to_json(parse_json(json)) = text").count()
    assert (same, stored.selectExpr("parse_json(json)").schema[0].dataType) == (
        len(TEXTS),
        types.VariantType(),
    )


def test_table_for_variants_has_json(cluster, client, tmp, variants, tmp_path):
    path, proxy = f"{tmp}/variants", cluster.proxy_urls[0]
    create_table(path, variants.schema, proxy=proxy)
    kinds = {one["name"]: one["type_v3"] for one in client.get(f"{path}/@schema")}
    assert {name: kinds[name]["item"] for name in COLUMNS} == dict.fromkeys(COLUMNS, "json")
    run(
        variants.writeStream.foreachBatch(TransactionalSink(path, proxy=proxy, retry=QUICK)),
        tmp_path,
    )
    assert client.get(f"{path}/@chunk_row_count") == 0
    assert len(list(client.select_rows(f"text from [{path}]"))) == len(TEXTS) + 1


def test_format_and_inner_variants_are_refused(cluster, tmp, variants, tmp_path):
    """With what to do: the format writes where no plan can be changed."""
    path, proxy = f"{tmp}/variants", cluster.proxy_urls[0]
    create_table(path, variants.schema, proxy=proxy)
    writer = variants.writeStream.format("yt").option("proxy", proxy).option("path", path)
    with pytest.raises(PySparkException, match=r"SchemaMismatchError.*to_json\(any\)"):
        run(writer, tmp_path)
    inner = variants.selectExpr("text", "array(json) as json")
    with pytest.raises(Exception, match=r"transform\(json, v -> to_json\(v\)\)"):
        TransactionalSink(path, proxy=proxy, retry=QUICK).check(inner)
