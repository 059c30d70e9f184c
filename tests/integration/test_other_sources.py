"""The page about JSON, numbers and files, as a reader would copy it: every row gets into one place, once."""

import json
import shutil

import pytest

from tests.code_blocks import blocks
from tests.flows import create_table
from yt_exactly_once import Target, TransactionalSink, register_source
from yt_exactly_once.local import LocalCluster

pytestmark = pytest.mark.nightly

TEXT, NUMBER = {"name": "value", "type": "string"}, {"name": "amount", "type": "int64"}
CUSTOMER = {"name": "customer", "type": "string"}
TABLES = {
    "texts": [TEXT],
    "doubles": [CUSTOMER, {"name": "amount", "type": "double"}],
    "orders_clean": [CUSTOMER, NUMBER],
    "orders_unparsed": [TEXT],
    "amounts": [CUSTOMER, NUMBER],
    "amounts_rejected": [CUSTOMER, {"name": "amount", "type": "double"}],
    "from_files": [CUSTOMER, NUMBER],
}
GOOD = [("ann", 1), ("bob", 2)]
BAD = ['{"customer": "eve", "amount": "many"}', "{", "[]", '{"amount": 3}']


def test_each_row_gets_into_one_place(spark, tmp_path, monkeypatch):
    with LocalCluster() as cluster:
        client = cluster.client()
        for name, schema in TABLES.items():
            create_table(client, f"//home/shop/{name}", schema)
        orders = [{"customer": name, "amount": amount} for name, amount in GOOD]
        texts = [*map(json.dumps, orders), *BAD]
        client.insert_rows("//home/shop/texts", [{"value": text} for text in texts])
        numbers = [("ann", 1.0), ("bob", 2.0), ("eve", 1e30)]
        client.insert_rows(
            "//home/shop/doubles", [{"customer": name, "amount": n} for name, n in numbers]
        )
        monkeypatch.setenv("YT_PROXY", cluster.proxy_urls[0])
        register_source(spark)
        (tmp_path / "incoming").mkdir()
        (tmp_path / "incoming/one.json").write_text("\n".join(texts[:2]))

        def rows(name):
            found = client.select_rows(f"* from [//home/shop/{name}]")
            return sorted(tuple(row[column["name"]] for column in TABLES[name]) for row in found)

        names = {"Target": Target, "TransactionalSink": TransactionalSink, "spark": spark}
        parsing, casting, files = (block.code for block in blocks("docs/how-to/other-sources.md"))
        for code, source in ((parsing, "texts"), (casting, "doubles")):
            exec(compile(code, "the block", "exec"), names)
            frame = spark.readStream.format("yt").load(f"//home/shop/{source}")
            (
                frame.writeStream.foreachBatch(names["sink"])
                .option("checkpointLocation", str(tmp_path / source))
                .trigger(availableNow=True)
                .start()
                .awaitTermination()
            )
        copied = compile(files.replace("/data", str(tmp_path)), "the block", "exec")
        for text in ('{"customer": "cid", "amount": 3}', None):
            exec(copied, names)
            names["query"].awaitTermination()
            if text is not None:
                shutil.rmtree(tmp_path / "checkpoints/from_files/commits")
                (tmp_path / "incoming/two.json").write_text(text)
        assert rows("orders_clean") == rows("amounts") == GOOD
        assert rows("from_files") == [*GOOD, ("cid", 3)]
        assert rows("orders_unparsed") == sorted((text,) for text in BAD)
        assert rows("amounts_rejected") == [("eve", 1e30)]
