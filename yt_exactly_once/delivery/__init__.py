"""The story of a batch: which route its rows take, and the nine steps that make it visible exactly once.

It knows neither Spark nor the YTsaurus client.
"""
