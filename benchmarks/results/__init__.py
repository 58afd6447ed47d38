"""Experiments on real data: train by a recipe, evaluate, and write scores, times and machine to docs/results.md."""
