"""Saved state of a run: checkpoints, run folder, resume, final bundle and history."""
