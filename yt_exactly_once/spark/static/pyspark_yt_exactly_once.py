"""The format `yt` in every session of Spark 4.0 and newer, in any language, without a registration.

With the first use of a Python data source, Spark imports each top-level module of the Python path whose name
begins with `pyspark_`, and takes its `DefaultSource`. An import that fails takes away the formats of
all other packages. So this one loads nothing but a class.
"""

from yt_exactly_once.spark.data_source import YtDataSource as DefaultSource

__all__ = ["DefaultSource"]
