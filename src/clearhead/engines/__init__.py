"""Engines: answer batches of requests with a model."""
