"""Everything that a page shows runs as it is shown, in order, on a cluster like the one of the page."""

import shlex

import pytest

from tests.code_blocks import How, blocks
from tests.local.pipelines import Pipeline
from yt_exactly_once import cli
from yt_exactly_once.codec.rejects import REJECT_SCHEMA
from yt_exactly_once.commit.ledger import HISTORY_SCHEMA
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.ytsaurus.tables import ensure_table


@pytest.fixture
def shop(monkeypatch):
    """A query that copies orders, one before it whose checkpoint was replaced, and one with digests."""
    with LocalCluster() as cluster:
        first = Pipeline(cluster, "//home/shop", queue_name="orders", target_name="result").create()
        first.feed(20)
        first.run(3)
        later = Pipeline(
            cluster,
            "//home/shop",
            query="query-2",
            queue_name="orders",
            target_name="result",
            at=list(first.at),
        )
        later.run(4)
        ensure_table(later.connection, "//home/shop/result_history", HISTORY_SCHEMA, {})
        digested = Pipeline(cluster, "//home/log", target_name="events", digest=True).create()
        digested.feed(3)
        digested.run(3)
        monkeypatch.setenv("YT_PROXY", cluster.proxy_urls[0])
        yield later


@pytest.mark.further
@pytest.mark.parametrize("page", ["see-and-repair", "add-a-column"])
def test_commands_of_the_page_run(shop, page, capsys, tmp_path, monkeypatch):
    """None fails, and each prints something."""
    monkeypatch.chdir(tmp_path)
    ensure_table(shop.connection, "//home/shop/letters", REJECT_SCHEMA, {})
    for block in blocks(f"docs/how-to/{page}.md"):
        if block.how is How.RUNS:
            continue
        if block.language == "python":
            exec(compile(block.code, page, "exec"), {})
            assert capsys.readouterr().out
            continue
        for line in block.code.replace("\\\n", " ").splitlines():
            program, *arguments = shlex.split(line, comments=True) or [""]
            if program != "yt-exactly-once":
                continue
            code = cli.main(arguments)
            printed = capsys.readouterr()
            assert code == 0, f"{line}: {printed.err}"
            assert printed.out, line
