"""How good translations are: metrics with signatures, comparison with significance, alignment error rate."""
