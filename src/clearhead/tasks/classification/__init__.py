"""Classification of texts (S5): labels and evaluation in `inference`, examples and loss in `training`.

`inference` does not import torch; `training` does, and only trainings import it.
"""
