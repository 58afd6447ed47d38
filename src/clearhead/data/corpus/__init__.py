"""Corpora on disk: cached records, memory-mapped token ids, held-out parts and sampling weights."""
