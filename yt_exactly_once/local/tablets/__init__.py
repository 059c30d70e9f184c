"""Dynamic tables of the embedded cluster: schemas, storage, transactions, queues and producers."""
