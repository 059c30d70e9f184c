"""The protocol: how a micro-batch becomes rows, offsets and a ledger entry, all or nothing.

It uses neither Spark nor the YTsaurus client. The modules talk to a cluster through the small interface of
`commit.cluster`. The model checker implements that interface too.
"""
