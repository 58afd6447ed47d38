"""Sentence embeddings of encoders: `inference` only, because they are not trained directly.

Does not import torch.
"""
