"""Search over a generator's step function, on NumPy arrays. Does not import torch."""
