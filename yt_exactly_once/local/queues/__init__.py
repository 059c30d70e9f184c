"""Queues: consumers and their registrations, producers, status and trimming."""
