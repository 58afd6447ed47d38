"""Recurrent networks: RNN, GRU and LSTM encoders and translators, with attention and without.

May import torch, config, kernels and the layers of `model`.
"""
