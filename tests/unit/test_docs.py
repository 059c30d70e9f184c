"""The documentation agrees with the code, its links lead somewhere, and its code is code."""

import json
import re
from pathlib import Path

import changes
import generate
import prose
import pytest
from pyspark.sql import SparkSession

from tests import code_blocks
from tests.crash.crash_points import CrashPoint
from tests.crash.deaths import PASSED_BY_NIGHT
from tests.versions.__main__ import VERSIONS
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.observability import Event
from yt_exactly_once.ytsaurus.failures import CODED, FAILURES
from yt_exactly_once.ytsaurus.proofs import PROOFS

ROOT = Path(__file__).parents[2]
LONGEST_CELL = 240
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_generated_pages_are_up_to_date():
    """Run python docs/generate.py after changing what they show."""
    stale = [
        path.name
        for path, text in generate.pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == []


def test_a_measured_figure_is_only_where_a_benchmark_writes_it():
    """One that was copied by hand would contradict its table after the next run."""
    for page in ("explanation/performance.md", "how-to/low-latency.md"):
        text = re.sub(r"```.*?```", "", (ROOT / "docs" / page).read_text("utf-8"), flags=re.DOTALL)
        assert re.findall(r"\b\d[\d. ]*(?:ms|s|%)(?![\w.])", text) == [], page


def test_every_event_is_documented():
    """Operators match on these names."""
    text = (ROOT / "docs/reference/events.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z_.]+)`", text, re.MULTILINE)) == {e.value for e in Event}


def test_every_failure_is_documented():
    """What is done about a code must not be guessed at three in the morning."""
    page = (ROOT / "docs/reference/retries.md").read_text(encoding="utf-8")
    text, _, proofs = page.partition("## What an error proves")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(FAILURES)
    codes = [int(code) for row in rows for code in re.findall(r"(\d+) [A-Z]", row[2])]
    assert sorted(codes) == sorted(code for failure in CODED for code in failure.codes)
    assert [row[4].strip(" `") for row in rows] == [each.error.__name__ for each in FAILURES]
    assert [int(code) for code in re.findall(r"^\| `(\d+) ", proofs, re.MULTILINE)] == sorted(
        PROOFS
    )


def test_every_fact_of_the_contract_has_its_test():
    """A test that was renamed or dropped leaves its fact without anybody who checks it."""
    text = (ROOT / "docs/reference/contract.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z]+/\w+\.py)::(\w+)` \|$", text, re.MULTILINE)
    assert len(named) == text.count("::")
    sources = {file: (ROOT / "tests" / file).read_text(encoding="utf-8") for file, _ in named}
    assert [test for file, test in named if f"\ndef {test}(" not in sources[file]] == []
    contract = {f"contract/{path.name}" for path in (ROOT / "tests/contract").glob("test_*.py")}
    # Its facts have a page of their own.
    assert contract - sources.keys() == {"contract/test_facts.py"}


def test_failure_table_names_a_test_that_exists_for_every_crash_point_of_every_mode():
    """The points, their tests and the page must not drift apart."""
    text = (ROOT / "docs/explanation/failure-table.md").read_text(encoding="utf-8")
    named = set(re.findall(rf"`([a-z_]+-(?:{'|'.join(DeliveryMode)}))`", text))
    assert named == {
        f"{point.name.lower()}-{mode}"
        for point in CrashPoint
        for mode in DeliveryMode
        if point.value.aftermath(mode)
    }
    assert set(re.findall(r"^\| `([A-Z_]+)`", text, re.MULTILINE)) == set(CrashPoint.__members__)
    source = (ROOT / generate.CRASH_TESTS).read_text(encoding="utf-8")
    assert f"\ndef {generate.CRASH_TEST}(" in source
    assert [
        name for name in named if not any(one.startswith(name) for one in PASSED_BY_NIGHT)
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """A link to a page that is gone is a defect."""
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    # A change is shown in the changelog.
    folder = page.parent if page.parent != changes.FOLDER else changes.DOCS
    assert [link for link in local if not (folder / link).exists()] == []


def test_changes_of_the_next_version_are_lists_with_a_section():
    """They become the changelog of that version as they are."""
    for file in changes.files():
        assert changes.section_of(file)
        assert file.read_text(encoding="utf-8").startswith("- "), file


def test_changes_become_a_version(tmp_path, monkeypatch):
    """By section; the newest version is the first one, and the files are gone."""
    for name in ("FOLDER", "CHANGELOG"):
        monkeypatch.setattr(changes, name, tmp_path / name.lower())
    changes.FOLDER.mkdir()
    changes.CHANGELOG.write_text(f"# Changelog\n\n{changes.MARK}\n## 0.1.0, 2026-01-01\n")
    for name, text in (("operating-b", "- Two"), ("writing-a", "- One"), ("operating-a", "- Too")):
        (changes.FOLDER / f"{name}.md").write_text(f"{text}\n")
    monkeypatch.setattr("sys.argv", ["changes.py", "0.2.0", "2026-02-02"])
    changes.main()
    assert changes.CHANGELOG.read_text().splitlines()[4:] == [
        *("## 0.2.0, 2026-02-02", "", "### Writing", "", "- One", ""),
        *("### Operating", "", "- Too", "- Two", "", "", "## 0.1.0, 2026-01-01"),
    ]
    assert changes.files() == []
    (changes.FOLDER / "other-a.md").touch()
    with pytest.raises(ValueError, match="must begin with one of"):
        changes.version("next")


def test_every_block_of_code_is_checked_or_has_a_reason_why_not():
    """A block that nothing runs is wrong sooner or later; list a new one in tests/code_blocks.py."""
    assert code_blocks.miscounted() == {}
    for page in code_blocks.pages():
        assert all(block.how for block in code_blocks.blocks(page))


@pytest.mark.parametrize("page", prose.pages(), ids=lambda page: page.name)
def test_sentences_are_short_and_in_the_words_of_the_field(page):
    """Readers read once, and not in their first language; `python docs/prose.py` lists all faults."""
    assert prose.faults(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Two queries go on.", "'go on'"),
        (f"It {'really ' * 25}works.", "27 words"),
        ("A (b (c)) d.", "nested parentheses"),
        ("| cell | It has a (very (deep)) end |", "nested parentheses"),
    ],
)
def test_fault_of_a_page_is_found(text, fault):
    (found,) = prose.faults(text)
    assert found.startswith(fault)


def test_tables_of_options_can_be_read():
    """What needs more than a sentence is below the table."""
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    cells = [cell for line in page.splitlines() if line[:1] == "|" for cell in line.split("|")]
    assert [cell for cell in cells if len(cell) > LONGEST_CELL] == []


def test_code_is_no_prose():
    assert prose.faults("```sh\nfate anew\n```\n\nSee `frame.goes on`. [A link](a_(b(c))).\n") == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page):
    """Contributors follow the walks file by file; a renamed module must not lead them astray."""
    named = re.findall(r"`([\w/]+/[\w.-]+\.(?:py|md))`", page.read_text(encoding="utf-8"))
    roots = [ROOT, ROOT / "yt_exactly_once", ROOT / "tests"]
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_methods_of_a_session_exist_in_the_language_that_the_page_names(page):
    """PySpark lacks some that Scala has."""
    lines = page.read_text(encoding="utf-8").splitlines()
    named = [(name, line) for line in lines for name in re.findall(r"`SparkSession\.(\w+)", line)]
    assert [
        line for name, line in named if not (hasattr(SparkSession, name) or "in Scala" in line)
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_compile(page):
    """What a reader copies must at least be Python."""
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        compile(block, page.name, "exec")


def test_the_workflow_for_hosted_runners_names_the_versions_that_are_tested():
    workflow = (ROOT / ".ci" / "github.yml").read_text()
    assert f"pyspark: {json.dumps(VERSIONS)}" in workflow
