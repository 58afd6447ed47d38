"""Inference engines, which compute the outputs of a model for batches of requests.

Imports `bundle`, `config`, `decoding`, `errors`, `extras` and `runtime`; `torch_engine` and `torch_forward` also import
torch, `data`, `kernels` and `model`.
"""
