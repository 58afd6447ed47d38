"""Sentence embeddings of encoders."""
