"""Changes of a pipeline that `docs/how-to/change.md` describes, done as it says."""

import re
from pathlib import Path

import pytest

from tests.local.operated import Operated
from yt_exactly_once.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs/how-to/change.md"


def commands(section: str) -> list[str]:
    """Return the commands of a section: those in blocks, and those within the text."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")
    text, _, _ = rest.partition("\n## ")
    return re.findall(r"^ *(yt(?:-exactly-once)? [^\n`]+)$|`(yt[^`]+)`", text, re.MULTILINE)


@pytest.mark.parametrize("stays", [True, False])
def test_queue_is_renamed(cluster, tmp, tmp_path, stays):
    """By the steps that the error names each row is there once. A new checkpoint alone repeats all rows."""
    query = Operated(cluster, tmp, tmp_path / "checkpoint").create()
    query.feed(5)
    query.run()
    named = [block or inline for block, inline in commands("Another queue or consumer")]
    show, *moves, register, skip, create, move = [line for line in named if "=" not in line]
    renamed, consumer = f"{tmp}/payments", f"{tmp}/own"
    given = {
        "//home/shop/own-consumer": consumer,
        "//home/shop/consumer": query.consumer,
        "//home/shop/payments": renamed,
        "//home/shop/orders": query.queue,
        "//home/shop/totals": query.target,
    }

    def do(line):
        for old, new in given.items():
            line = line.replace(old, new)
        code, said = query.command(line)
        assert code == 0, said
        return said

    assert "partition 1: rows 0 to 5" in do(show)
    for line in (*moves, *([register, skip] if stays else [create])):
        do(line)
    query.queue = renamed
    if not stays:
        query.consumer = consumer
        for partition in range(2):
            do(move.replace("PARTITION", str(partition)).replace("END", "5"))
    query.feed(5)
    with pytest.raises(ConfigError, match="belongs to the queue") as stopped:
        query.run()
    assert "section 'Another queue or consumer'" in stopped.value.remedy
    query.checkpoint = tmp_path / "another"
    query.run()
    query.assert_exact()
    code, said = query.command(f"yt-exactly-once audit {query.target} --by count")
    assert (code, "read them" in said) == (0, False), said
    assert query.command(f"yt-exactly-once status {query.target} --check")[0] == 0


@pytest.mark.parametrize("mode", ["transactional", "at-least-once"])
def test_target_is_renamed(cluster, tmp, tmp_path, mode):
    """No row is lost or repeated, and the audit says what it cannot prove any more."""
    query = Operated(cluster, tmp, tmp_path / "checkpoint", mode).create()
    query.feed(5)
    query.run()
    named = [block or inline for block, inline in commands("Rename a target")]
    link, *moves, prune = [line for line in named if not line.endswith("new_ledger")]
    renamed = f"{tmp}/sums"

    def do(line):
        mine = line.replace("//home/shop/totals", query.target).replace("//home/shop/sums", renamed)
        code, said = query.command(f"{mine} --yes" if "prune" in line else mine)
        assert code == 0, said

    do(link)
    assert len(list(query.client.select_rows(f"* from [{renamed}]"))) == 10
    query.client.remove(renamed)
    for line in moves:
        do(line)
    query.options = {"ledger_path": query.ledger, "new_ledger": True}
    query.target, before = renamed, query.target
    for _ in range(2):
        query.feed(5)
        query.run()
        query.options.pop("new_ledger", None)
    query.assert_exact()
    query.target = before
    do(prune)
    query.target = renamed
    code, said = query.command(f"yt-exactly-once audit {renamed} --ledger {query.ledger}")
    assert (code, "NOT proven" in said) == (1, True), said
    code, said = query.command(f"yt-exactly-once ledger show {query.ledger}")
    assert before not in said.replace(query.ledger, "")
