"""Tagging of words (S6)."""
