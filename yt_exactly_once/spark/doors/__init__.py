"""Where Spark hands batches over. A door finds out which batch it is, and holds an engine."""
