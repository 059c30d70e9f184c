"""Spark's private side: its calls, texts, logs and versions, as nobody promises them.

A new PySpark is tried here. What a module does not understand it refuses by name; it never takes it for "no".
"""
