"""Damages that no quick test can notice, and why.

The key is the module, the function or class, the source that is replaced, and what it is replaced by.
"""

_SIZE = "A size of requests: any number near it is as good."
_KEPT = "A number of batches that stay, wait or go at a time: any near it is as good."
_WAIT = "A longest wait or a number of attempts: any near it is as good."
_LENGTHS = (
    "Both sides have one item per source or target, whatever the data: the check is for readers."
)

_CLOCK = "No two readings of the clock are that interval apart to the last bit."
_NO_BATCH = "No batch runs yet, and no check before the start shows its number."

_LITTLE = "A byte is as little as none: only a large batch makes a difference."

EXPLAINED: dict[tuple[str, str, str, str], str] = {
    (
        "commit/claims.py",
        "",
        "2",
        "3",
    ): "Any number that no Spark partition has, and the claim of the driver has not, is as good.",
    ("spark/engine/planning.py", "Known", "0", "1"): _LITTLE,
    ("spark/engine/planning.py", "_known", "0", "1"): _LITTLE,
    ("delivery/route.py", "", "64", "65"): _SIZE,
    ("delivery/route.py", "", "20", "21"): _SIZE,
    ("delivery/route.py", "_against_tasks", "0", "1"): "A second is far below a lease, as 0 is.",
    (
        "commit/batch.py",
        "MicroBatch",
        "False",
        "True",
    ): "A default for tests: `identified` and the doors give every one of these.",
    (
        "commit/batch.py",
        "TargetColumns",
        "False",
        "True",
    ): "A default for tests: a prepared target always says whether its columns are recorded.",
    (
        "commit/tally.py",
        "RowDigest",
        "False",
        "True",
    ): "A default for the digest of a part, of which only `Tally.after` says where it began.",
    (
        "commit/notes.py",
        "History._lost_sessions",
        "1",
        "2",
    ): "Both stand for no batch: they are before batch 0, as every number below it.",
    (
        "commit/transactional.py",
        "BatchCommit.commit",
        "1",
        "2",
    ): "A batch with a part left lacks its last digest in the ledger: the others are compared.",
    (
        "delivery/memory.py",
        "Prepared.fits",
        "_now() - self.looked_at <= LOOK_INTERVAL",
        "_now() - self.looked_at < LOOK_INTERVAL",
    ): _CLOCK,
    ("delivery/memory.py", "Prepared.wants_check", "2", "3"): _WAIT,
    (
        "delivery/memory.py",
        "Prepared.wants_check",
        "_now() - self.looked_at > LOOK_INTERVAL / 2",
        "_now() - self.looked_at >= LOOK_INTERVAL / 2",
    ): _CLOCK,
    (
        "commit/other_sources.py",
        "OtherSources.to_text",
        "len(text) <= LONGEST_TEXT",
        "len(text) < LONGEST_TEXT",
    ): "A size of texts that are kept: one character less is as good.",
    ("spark/engine/preparation.py", "check_before_start", "0", "1"): _NO_BATCH,
    ("spark/engine/preparation.py", "_check_query", "0", "1"): _NO_BATCH,
    ("spark/engine/past_batches.py", "", "1_000", "1001"): _KEPT,
    ("spark/engine/past_batches.py", "", "100", "101"): _KEPT,
    ("spark/sink/complete.py", "", "50_000", "50001"): _SIZE,
    (
        "spark/sink/complete.py",
        "CompleteResult.surplus",
        "1",
        "2",
    ): "One row more than fits shows that the table is too large; two rows show it as well.",
    (
        "commit/cluster.py",
        "Payload",
        "0",
        "1",
    ): "A default for rows without a digest: it is only read where each payload is given one.",
    (
        "commit/transactional.py",
        "BatchCommit",
        "False",
        "True",
    ): "`init=False`: private fields could be given as arguments then, and nobody gives them.",
    ("commit/transactional.py", "BatchCommit._moves", "True", "False"): _LENGTHS,
    ("commit/transactional.py", "BatchCommit._fill", "True", "False"): _LENGTHS,
    ("commit/consumers.py", "consumer_offsets", "True", "False"): _LENGTHS,
    (
        "spark/sink/letters.py",
        "letters_of",
        "True",
        "False",
    ): "Rejected rows have one group: its rows are all rows, however parts are cut.",
    ("spark/source/range.py", "", "5", "6"): _WAIT,
    ("spark/source/range.py", "", "40", "41"): _WAIT,
    ("spark/source/range.py", "", "50", "51"): _WAIT,
    ("spark/source/range.py", "", "16", "17"): _SIZE,
    ("spark/source/range.py", "", "20", "21"): _SIZE,
    ("spark/source/range.py", "", "25_000", "25001"): _SIZE,
    ("spark/query/calls.py", "_refusal", "True", "False"): _LENGTHS,
    ("spark/engine/preparation.py", "prepare", "True", "False"): _LENGTHS,
    (
        "spark/modes/sessions.py",
        "SourcePosition.grouped",
        "codes * len(column.dictionary) + column.indices.to_numpy()",
        "(codes * len(column.dictionary) - column.indices.to_numpy())",
    ): "An index is less than the length: codes tell groups apart with either sign.",
}
