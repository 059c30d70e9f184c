"""The RPC front of a proxy: YTsaurus's own binary protocol, on the handlers that HTTP requests use.

From the socket inwards: `packets` (framing), `envelopes` (requests and responses), `front` (tokens,
faults, threads), `methods` (what a request asks a command for). Rows travel in the wire format of
`rowsets`.
"""
