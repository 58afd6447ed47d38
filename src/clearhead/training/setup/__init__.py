"""Preparation of a run: validated settings, automatic choices, measured speed, pretrained weights.

Imports the other sub-packages of `training`.
"""
