"""Running all studies, and generating docs/studies.md from their results."""
