"""Encoders of images: Vision Transformer, convolutional network and multi-layer perceptron.

Imports torch, `config`, `errors`, `kernels` and the layers of `model`.
"""
