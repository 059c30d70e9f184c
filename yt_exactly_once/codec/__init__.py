"""Rows between Spark's Arrow batches and YTsaurus: types, schemas, payloads.

Arrow is the form of rows between `spark` and this package; below, there are only bytes. It opens no
connection and knows no protocol.
"""
