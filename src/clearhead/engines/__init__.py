"""Engines: answer batches of requests with a model.

Imports bundle, config, decoding, errors, extras and runtime; `torch_engine` and `torch_forward` also import
torch, data, kernels and model.
"""
