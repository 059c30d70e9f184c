"""The version of YTsaurus that the embedded cluster claims to be."""

VERSION = "25.2.0-local"
