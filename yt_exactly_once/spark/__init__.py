"""The Spark side: sink, source, and what they need to know of a running query.

The only package that imports pyspark. Importing it starts no JVM.
"""
