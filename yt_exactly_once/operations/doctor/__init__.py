"""`doctor`: what is wrong or will be, before the first start of a query and when it does not run.

It changes nothing, and it needs neither Java nor Spark.
"""
