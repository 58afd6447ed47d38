"""All studies run to the end, and docs/studies.md made from their raw numbers."""
