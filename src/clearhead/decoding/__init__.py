"""Search over a generator's step function, on NumPy arrays.

Imports NumPy and, from clearhead, `config`, `errors` and `runtime.cancellation`; never torch.
"""
