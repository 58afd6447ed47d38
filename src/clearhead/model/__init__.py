"""The model families and their layers, which compute with tensors and token ids.

Imports torch and, from clearhead, `config`, `errors` and `kernels`.
"""
