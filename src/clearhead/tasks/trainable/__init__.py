"""Shared parts of the training modules of all tasks: records, batches, losses, validation and replay. Imports torch."""
