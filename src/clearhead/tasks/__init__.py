"""One package per task, with its inference, evaluation and training, and the modules that the tasks share.

`registry` lists the tasks. Only the modules named `training` and the package `trainable` import torch.
"""
