"""Engines: answer batches of requests with a model.

The modules `torch_*` import torch; the others import clearhead's runtime, decoding, bundle, config, errors and extras.
"""
