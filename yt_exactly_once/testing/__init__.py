"""Tests of pipelines: drivers that are started, listened to and killed."""
