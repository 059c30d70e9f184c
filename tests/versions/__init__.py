"""The tests that run on every version of PySpark: `python -m tests.versions`."""
