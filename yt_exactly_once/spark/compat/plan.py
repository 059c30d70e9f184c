"""What Spark shows of a streaming query before it starts: its sources, whether it keeps state, and shuffles.

What it does not show is not known, and refuses nothing: the first batch looks at the query that runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yt_exactly_once.spark.compat.jvm import execution_of, jvm_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

_OPERATOR = re.compile(r"^[ :|+-]*(?:\*\(\d+\) )?(\w+)", re.MULTILINE)
"""How `explain` begins a line: where the operator is in the tree, its stage, and its name."""

_KEEPS_STATE = re.compile(
    "StateStoreSave|StreamingDeduplicate|StreamingSymmetricHashJoin|StreamingGlobalLimit|WithState"
)
"""What names of operators have that write state."""

_RELATION = "StreamingRelationV2"


@dataclass(frozen=True)
class PlannedSource:
    """A source of a query.

    Attributes:
        queue: path of the queue; empty for another source.
        consumer: path of its consumer; empty without one.
        proxy: that the source is given; empty without one.
    """

    queue: str = ""
    consumer: str = ""
    proxy: str = ""


@dataclass(frozen=True)
class PlannedQuery:
    """What is known of a query that has not started.

    Attributes:
        sources: each once.
        stateful: whether it is sure that the query keeps state.
        shuffles: whether it is sure that its rows are shuffled.
    """

    sources: tuple[PlannedSource, ...]
    stateful: bool
    shuffles: bool


def planned_query(frame: DataFrame) -> PlannedQuery | None:
    """Return what Spark shows of a streaming DataFrame; `None` of another one, and on Spark Connect."""
    jvm = jvm_of(frame.sparkSession) if getattr(frame, "isStreaming", False) else None
    if jvm is None:
        return None
    execution = execution_of(frame)
    # The physical plan of a stream cannot be asked for, but it is explained.
    text = jvm.org.apache.spark.sql.api.python.PythonSQLUtils.explainString(execution, "simple")
    operators = {*_OPERATOR.findall(text)}
    return PlannedQuery(
        tuple(_sources(execution)),
        stateful=any(map(_KEEPS_STATE.search, operators)),
        shuffles="Exchange" in operators,
    )


def _sources(execution: Any) -> Iterator[PlannedSource]:
    leaves = execution.analyzed().collectLeaves()
    known: list[Any] = []
    for leaf in (leaves.apply(number) for number in range(leaves.size())):
        # A DataFrame that is used twice is one source, unless Spark had to tell its columns apart.
        if not leaf.isStreaming() or any(leaf.equals(other) for other in known):
            continue
        known.append(leaf)
        is_known = leaf.getClass().getSimpleName() == _RELATION
        options = leaf.extraOptions().get if is_known else {}.get
        path, *more = (str(options(name) or "") for name in ("path", "consumer_path", "proxy"))
        yield PlannedSource(path, *more) if path.startswith("//") else PlannedSource()
