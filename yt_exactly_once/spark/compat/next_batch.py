"""Where a query continues, by the files of its checkpoint: for tools, which have no Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from yt_exactly_once.commit.entry import SourceKey
from yt_exactly_once.commit.other_sources import OtherSources
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.compat.spark_log import COMMITS, OFFSETS, read_offsets
from yt_exactly_once.spark.query.offset_log import other_sources, source_ranges
from yt_exactly_once.spark.storage import Storage, open_storage, shown
from yt_exactly_once.ytsaurus.client import Connection


@dataclass(frozen=True)
class NextBatch:
    """Where the batch begins that a query runs next.

    Attributes:
        location: of the checkpoint, as errors may show it.
        starts: first row by queue and partition; nothing of a queue that no batch has read.
        planned: the newest batch that Spark has planned; -1 without any.
        others: where it begins and ends in sources that are no queues.
    """

    location: str
    query_id: str
    starts: Mapping[SourceKey, Mapping[int, int]]
    planned: int
    others: OtherSources


def next_batch(location: str, connection: Connection) -> NextBatch:
    """Read it from Spark's log.

    Raises:
        ConfigError: there is no checkpoint, or it is on a file system that cannot be read here.
        CheckpointError: a file of it is torn.
        NewerFormatError: a later version of Spark, or of this package, has written it.
    """
    files, path = open_storage(location, connection), shown(location)
    try:
        query_id = str(json.loads(files.read("metadata"))["id"])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(
            "There is no checkpoint of a query",
            remedy="Pass the checkpointLocation of the query, or a copy of its files metadata, offsets and "
            "commits on a disk",
            path=path,
        ) from error
    starts, others, planned = {}, OtherSources((), ()), -1
    for number in batches_in(files, OFFSETS)[-1:]:
        is_done = number <= max(batches_in(files, COMMITS), default=-1)
        texts = read_offsets(number, files.read(f"{OFFSETS}/{number}"), path=path).texts
        others, planned = other_sources(texts), number
        # Each offset of a queue says where its batch begins, too.
        for source in source_ranges(texts, ()):
            starts[source.key] = {
                one.partition: one.end if is_done else one.start for one in source.partitions
            }
    return NextBatch(path, query_id, starts, planned, others)


def batches_in(files: Storage, folder: str) -> list[int]:
    """Return the batches that a folder of Spark's log has a file of, in their order."""
    return sorted(int(name) for name in files.names(folder) if name.isdecimal())
