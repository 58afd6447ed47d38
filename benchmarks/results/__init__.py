"""Real data: recipes run to the end, each score with its time and machine written into docs/results.md."""
