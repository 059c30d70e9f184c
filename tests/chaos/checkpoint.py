"""Checkpoints as files: where batches end, and copies that a second driver goes on from."""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.flows import Entry

Ends = dict[int, int]
"""First row after a batch, per partition of the queue."""


def read_cuts(checkpoint: Path) -> list[Ends]:
    """Return where each batch ends, from the offset log of a checkpoint; batches count from 0."""
    files = _numbered(checkpoint / "offsets")
    numbers = [int(path.name) for path in files]
    if numbers != list(range(len(numbers))):
        raise RuntimeError(f"The offset log of {checkpoint} has gaps: {numbers}")
    return [_ends(path) for path in files]


def is_usable(checkpoint: Path) -> bool:
    """Tell whether a query that goes on from there is the same query."""
    return (checkpoint / "metadata").exists()


def twin(checkpoint: Path) -> Path:
    """Return where the copy of a checkpoint is."""
    return checkpoint.with_name(f"{checkpoint.name}-copy")


def copy(checkpoint: Path) -> None:
    """Copy a checkpoint that nobody writes at the moment."""
    shutil.copytree(checkpoint, twin(checkpoint))


def keep_true_one(checkpoint: Path, queue: str, entry: Entry | None) -> bool:
    """Keep, of a checkpoint and its copy, the one that can go on; tell if it was the copy.

    It is the one that has planned the batch in the ledger. When both have, it is the one that has done
    more: its driver may have let the queue trim rows that the other one still needs for its state.

    Args:
        checkpoint: the original; the kept one will be there.

    Raises:
        RuntimeError: neither of them has planned the batch that is in the ledger.
    """
    copied = twin(checkpoint)
    able = [
        each for each in (checkpoint, copied) if entry is None or _has_planned(each, queue, entry)
    ]
    if not able:
        raise RuntimeError(f"Nobody has planned the batch that is in the ledger: {entry}")
    if max(able, key=_batches_done) is checkpoint:
        shutil.rmtree(copied)
        return False
    shutil.rmtree(checkpoint)
    copied.rename(checkpoint)
    return True


def _batches_done(checkpoint: Path) -> int:
    return len(_numbered(checkpoint / "commits"))


def _numbered(folder: Path) -> list[Path]:
    """Return the files of one of Spark's logs, in their order."""
    if not folder.exists():
        return []
    files = [path for path in folder.iterdir() if path.name.isdecimal()]
    return sorted(files, key=lambda path: int(path.name))


def _has_planned(checkpoint: Path, queue: str, entry: Entry) -> bool:
    path = checkpoint / "offsets" / str(entry.batch_id)
    return path.exists() and _ends(path) == entry.ends[queue]


def _ends(path: Path) -> Ends:
    # First the version, then the metadata, then one line per source.
    offset: dict[str, Any] = json.loads(path.read_text().splitlines()[2])
    return {int(partition): int(row) for partition, row in offset["partitions"].items()}
