"""Evaluation metrics with signatures, significance tests and the alignment error rate.

The package receives texts, labels and sums, and imports no models; only `metrics` and `comparison` import sacreBLEU.
"""
