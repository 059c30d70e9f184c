"""`verify-cluster`: asks a live cluster, as a query reaches it, for every fact the protocol stands on."""
