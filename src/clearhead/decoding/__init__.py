"""Search over a generator's step function, on NumPy arrays.

Imports NumPy and of clearhead config, errors and `runtime.cancellation`, never torch.
"""
