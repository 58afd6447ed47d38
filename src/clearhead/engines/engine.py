"""Interfaces of inference engines. Does not import torch.

N texts, D model width, L labels, S length, M masked positions, V vocabulary
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class EncoderEngine(Protocol):
    """Engine that encodes texts: classification, tagging, embedding, masked language modelling."""

    def pooled(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Return one vector [D] per text, pooled as the model is configured."""

    def mean_states(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Return the mean of the encoder states [D] per text."""

    def logits(self, rows: Sequence[Sequence[int]]) -> list[Any]:
        """Return the logits of the labels: [L] per text, or [S, L] for token classification."""

    def masked_lm(self, rows: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]) -> list[Floats]:
        """Return the log-probabilities [M, V] at the given positions of each text."""
