"""The same format as `yt_exactly_once`: Spark prefers a JAR that has the name `yt`, as SPYT's has.

Spark takes one format from each module.
"""

from yt_exactly_once.spark.data_source import SECOND_NAME, named

__all__ = ["DefaultSource"]

DefaultSource = named(SECOND_NAME)
