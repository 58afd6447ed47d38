"""Benchmarks of clearhead against other toolkits, and the programs that write measured results into docs/."""
