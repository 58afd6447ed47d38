"""Traces: recorded activations, attention weights and search of one real run."""
