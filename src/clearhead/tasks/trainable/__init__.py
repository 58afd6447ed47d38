"""Training side of each task: its examples, its loss and its validation. Imports torch."""
