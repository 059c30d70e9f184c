"""The protocol: how a micro-batch becomes rows, offsets and a ledger entry, all or nothing.

No Spark and no YTsaurus client in here: the modules speak to a cluster through the small interface of
`commit.cluster`, which is also what the model checker implements.
"""
