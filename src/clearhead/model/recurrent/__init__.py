"""Recurrent networks: RNN, GRU and LSTM encoders and translators, with or without attention.

Imports torch, `config`, `kernels` and the layers of `model`.
"""
