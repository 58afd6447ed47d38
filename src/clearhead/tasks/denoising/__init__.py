"""Span corruption and denoising (S9): sentinels and evaluation in `inference`, corrupted spans and loss in `training`.

`inference` does not import torch; `training` does, and only trainings import it.
"""
