"""The training loop: updates, learning rate, validations, gradients and callbacks.

Imports `training.distributed`, but neither `training.checkpoint` nor `training.setup`: a `RunLogger` saves the results.
"""
