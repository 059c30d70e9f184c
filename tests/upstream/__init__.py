"""YTsaurus's own integration tests, unmodified, as the witness of the embedded cluster."""
