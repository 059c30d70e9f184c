"""TransactionalSink and what it is made of: options, targets, delivery modes, replay of a batch."""
