"""What a machine can check of the words: long sentences, nested parentheses, words that readers stumble over.

Usage: `python docs/prose.py` lists what is wrong, `python docs/prose.py --count` counts words and sentences.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS = 25

BANNED = re.compile(
    r"\b(anew|amiss|mend(s|ed)?|befalls?|fates?|frames?|whose \w+ is \w+ by|in step(?! \d)|of which|but for|"
    r"(go|goes|gone|went) on|looks? after|(tell|tells|told) of|bears?|"
    r"(at|where|there|offset|consumer) stands?|stands? (at|for|in)|is well)\b",
    re.IGNORECASE,
)
"""The field has a word for each of these: again, wrong, fix, outcome, DataFrame, continue, advance, ..."""

_FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HTML = re.compile(
    r"^ *</?(figure|figcaption|img|picture|source|details|summary)\b[^>]*>", re.MULTILINE
)
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)")
_CODE = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*>:]|\d+\.)\s)|(?<=^)(?=#)", re.MULTILINE)
_MARK = re.compile(r"^\s*(?:[-*>:#]+|\d+\.)\s+")
_END = re.compile(r"(?<=[.!?])[)\"'*]*\s+(?=[^a-z])")


def pages() -> list[Path]:
    """Return the pages that people write and read."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if "_build" not in page.parts and "measured" not in page.parts]


def sentences(markdown: str) -> list[str]:
    """Return the sentences of a page: of its paragraphs and lists, with `C` in place of code.

    In a table a semicolon separates items.
    """
    text = _HTML.sub("", _COMMENT.sub("", _FENCE.sub("", markdown)))
    text = _LINK.sub(r"\1", _CODE.sub("C", text))
    found: list[str] = []
    for block in _BLOCK.split(text):
        lines = block.splitlines()
        rows = [line for line in lines if line.lstrip().startswith("|")]
        cells = [cell for row in rows for cell in row.split("|")]
        prose = _MARK.sub("", " ".join(line for line in lines if line not in rows))
        items = [item for cell in cells for item in cell.split(";")]
        for part in [prose, *items]:
            found += [one.strip() for one in _END.split(part) if re.search(r"\w", one)]
    return found


def words(sentence: str) -> int:
    """Count the words of a sentence; code counts as one."""
    return len(re.findall(r"[\w'/.,%-]*\w[\w'/.,%-]*", sentence))


def faults(markdown: str) -> list[str]:
    """Return what is wrong with the words of a page."""
    found: list[str] = []
    for sentence in sentences(markdown):
        if words(sentence) > MOST_WORDS:
            found.append(f"{words(sentence)} words: {sentence}")
        if re.search(r"\([^()]*\(", sentence):
            found.append(f"nested parentheses: {sentence}")
        found += [f"{word[0]!r}: {sentence}" for word in BANNED.finditer(sentence)]
    return found


def main() -> int:
    """List the faults of all pages, or count."""
    total = 0
    for page in pages():
        text = page.read_text(encoding="utf-8")
        name = page.relative_to(ROOT)
        if "--count" in sys.argv:
            each = [words(one) for one in sentences(text)]
            longer = sum(count > MOST_WORDS for count in each)
            print(f"{name}: {sum(each)} words, {len(each)} sentences, {longer} over {MOST_WORDS}")  # noqa: T201
            continue
        for fault in faults(text):
            total += 1
            print(f"{name}: {fault}")  # noqa: T201 - a command line prints
    return int(bool(total))


if __name__ == "__main__":
    sys.exit(main())
