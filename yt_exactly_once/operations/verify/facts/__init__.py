"""The facts, by area and in the order in which they are checked."""

from yt_exactly_once.operations.verify.facts import claims, producers, queues, rows, transactions

FACTS = (*transactions.fact, *claims.fact, *rows.fact, *queues.fact, *producers.fact)
"""Every fact."""
