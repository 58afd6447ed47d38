"""Captions of images (S11)."""
