"""Checkpoints on YTsaurus: a gateway that speaks WebHDFS to Spark and keeps the files in Cypress.

Stock Spark has a client for WebHDFS, so `checkpointLocation` can lie on YTsaurus without a jar.
"""

from yt_exactly_once.checkpoints.store import Checkpoints, checkpoints, gateway_at

__all__ = ["Checkpoints", "checkpoints", "gateway_at"]
