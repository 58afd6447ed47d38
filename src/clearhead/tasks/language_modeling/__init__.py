"""Language modelling (S8): text generation and perplexity in `inference`, packed documents and loss in `training`.

`inference` does not import torch; `training` does, and only trainings import it.
"""
