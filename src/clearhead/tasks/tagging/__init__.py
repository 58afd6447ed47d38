"""Tagging of words (S6): spans and evaluation in `inference`, windows of long sentences, examples and loss.

`inference` does not import torch; `training` does, and only trainings import it.
"""
