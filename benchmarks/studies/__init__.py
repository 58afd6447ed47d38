"""Runs of all studies, and docs/studies.md, generated from their raw numbers."""
