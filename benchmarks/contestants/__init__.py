"""Contestants: one program per file, which runs as a separate process with `benchmarks.harness.protocol`."""
