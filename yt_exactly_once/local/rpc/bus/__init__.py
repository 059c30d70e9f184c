"""The bus: connections, packets, and the envelopes of requests and answers."""
