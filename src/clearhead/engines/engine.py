"""Interfaces of inference engines, and the error they share. Does not import torch.

H heads, T target length, S source length, N texts, D model width, L labels, M masked positions, V vocabulary
"""

from collections.abc import Generator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clearhead.config import DecodingConfig
from clearhead.decoding.requests import Hypothesis, Request
from clearhead.errors import DecodingError

Floats = NDArray[np.float32]


class NoOutputError(DecodingError):
    """The model's outputs are not finite, so that no hypothesis is the best."""

    def __init__(self, requests: Sequence[Request], answers: Sequence[list[Hypothesis]]) -> None:
        """`answers`: hypotheses of each request; the message names the first one without any that is not cancelled."""
        self.answers = answers
        failed = [number for number, answer in enumerate(answers) if not answer]
        number = min(failed, key=lambda number: requests[number].is_cancelled)
        name = requests[number].name or f"sentence {number + 1}"
        super().__init__(
            f"{name}: the model returns no finite probabilities, probably because its training diverged; "
            "train it again with a lower training.learning_rate"
        )


def check_answers(requests: Sequence[Request], answers: Sequence[list[Hypothesis]]) -> list[list[Hypothesis]]:
    """Return the hypotheses of each request, none if it is cancelled; raise NoOutputError if another has none."""
    are_cancelled = [request.is_cancelled for request in requests]
    if not all(answer or is_cancelled for answer, is_cancelled in zip(answers, are_cancelled, strict=True)):
        raise NoOutputError(requests, answers)
    return [[] if is_cancelled else answer for answer, is_cancelled in zip(answers, are_cancelled, strict=True)]


class Engine(Protocol):
    """Engine that generates token sequences."""

    @property
    def max_positions(self) -> int:
        """Largest number of tokens of a source, and of an output."""

    def run(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, best first; none for a request that is cancelled.

        Raises NoOutputError if the model returns no finite probabilities.
        """

    def stream(self, request: Request, settings: DecodingConfig) -> Generator[tuple[int, ...], None, Hypothesis]:
        """Yield ever longer beginnings of the best output, and return the hypothesis."""


class ScoringEngine(Protocol):
    """Engine that computes the probabilities of given outputs (forced decoding)."""

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        attention_layer: int | None = None,
    ) -> list[tuple[Floats, Floats | None]]:
        """Return for each pair the log-probabilities of the target tokens and, if a decoder layer is given, its
        cross-attention [H, T, S].

        A translator predicts target token t from the source and the target tokens before t; source and target have
        their end token. A language model predicts target token t from source tokens 0 to t.
        """


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


class ImageEngine(Protocol):
    """Engine that classifies images."""

    def image_logits(self, pixels_NCYX: Floats) -> Floats:
        """Return the logits [L] of each image of a batch; pixels are from -1 to 1."""
