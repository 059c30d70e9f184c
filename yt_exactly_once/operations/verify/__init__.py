"""`verify-cluster`: asks a live cluster for every fact that the protocol stands on.

It uses the package's own connections, transactions and codec, so what it shows holds for what a query does.
"""
