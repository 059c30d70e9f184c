"""Rows between Spark's Arrow batches and YTsaurus: types, schemas, payloads.

It is the only importer of pyarrow below `spark`. It opens no connection and knows no protocol.
"""
