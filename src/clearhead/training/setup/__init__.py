"""Preparation of a run: validated settings, automatic choices, measured speed, pretrained weights."""
