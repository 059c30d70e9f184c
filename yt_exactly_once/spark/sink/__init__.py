"""TransactionalSink and what it is made of: options, targets, write modes, replay of a batch."""
