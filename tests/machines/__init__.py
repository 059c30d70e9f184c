"""Spark Standalone on this machine, with executors in processes of their own that are killed."""
