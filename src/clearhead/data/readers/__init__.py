"""Readers of text, tables and images, one module per format. Imports `data.records`, not the corpus."""
