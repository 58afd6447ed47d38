"""The model families and their parts, which compute with tensors and token ids.

Imports torch, and of clearhead config, errors and kernels.
"""
