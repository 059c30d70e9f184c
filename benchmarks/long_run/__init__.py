"""The long run: one query copies millions of rows from a queue to a table. Does anything grow on the way?

`python -m benchmarks.long_run` feeds a queue, before or while the query runs, and looks at every
process after each million rows.
"""
