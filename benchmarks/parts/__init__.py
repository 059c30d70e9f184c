"""What the parts cost one by one: encoding, decoding, pulling, committing, and the embedded cluster.

`python -m benchmarks.parts` measures each of them alone, in one process, without a streaming query, so
that a change of one part shows where it was made.
"""
