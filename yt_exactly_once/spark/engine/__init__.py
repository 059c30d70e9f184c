"""The story of a batch, the same behind every door: `engine.Engine.deliver` tells it."""
