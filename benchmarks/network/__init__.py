"""`python -m benchmarks.network`: what a network between Spark and the cluster costs."""
