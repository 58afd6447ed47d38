"""Encoders of images: Vision Transformer, convolutional network and multi-layer perceptron.

May import torch, config, errors, kernels and the layers of `model`.
"""
