"""Saved state of a run: checkpoints, run folder, resuming, final bundle and history of runs.

Imports the other sub-packages of `training`.
"""
