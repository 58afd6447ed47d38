"""Shared parts of the benchmarks: protocol and processes of contestants, training data, records of runs."""
