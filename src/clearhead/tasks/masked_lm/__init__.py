"""Masked language modelling (S7)."""
