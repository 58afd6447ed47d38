"""Span corruption and denoising (S9)."""
