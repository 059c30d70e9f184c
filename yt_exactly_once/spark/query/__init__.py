"""What is known of a running query: its offset log, checkpoint, lineage and calls of its sink.

Shared by the sink and the source.
"""
