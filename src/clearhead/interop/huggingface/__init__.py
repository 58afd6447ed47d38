"""Hugging Face folders: one module per model family with its settings and tensor names. Does not import
`transformers`.
"""
