"""Hugging Face folders: one module per family with its tensor names and settings. `transformers` is not imported."""
