"""The proof that a target has every row once: row by row against its queues, or by digests of the ledger."""
