"""`python -m benchmarks.floor`: which settings of Spark make small batches cheaper."""
