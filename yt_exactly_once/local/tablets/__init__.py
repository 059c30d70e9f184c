"""Dynamic tables of the embedded cluster: storage, states, transactions, writes and reads."""
