"""Spark Standalone on this machine with checkpoints on YTsaurus, where every kind of process is killed."""
