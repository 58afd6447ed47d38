"""Translation of texts (S1 to S4): search and evaluation in `inference`, pairs and loss in `training`.

`inference` does not import torch; `training` does, and only trainings import it.
"""
