"""Training: preparation of a run, distributed execution, the update loop, checkpoints and the final bundle.

Everything below this package may import torch. Inference does not import it: of the `api` only `train` does.
"""
