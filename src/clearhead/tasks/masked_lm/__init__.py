"""Masked language modelling (S7): predictions for masks in `inference`, choice of masked tokens in `masking`, loss in
`training`.

`inference` and `masking` do not import torch; `training` does, and only trainings import it.
"""
