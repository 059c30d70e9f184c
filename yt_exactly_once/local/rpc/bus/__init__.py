"""The bus: connections, packets with checksums, and the envelopes of requests and answers."""
