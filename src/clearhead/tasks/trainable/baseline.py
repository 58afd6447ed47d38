"""Baselines: loss and score of predictors without training, which a model must exceed to have learned its task.

V tokens or labels
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearhead.data.corpus.id_arrays import IdArrays

# A network first learns how frequent each token is: then its loss is within a few percent of the baseline, and its
# output does not depend on the input. A model has learned its task if its loss is lower by at least this share.
LEARNED_MARGIN = 0.1
# Decoding is worthwhile below this share of the baseline's loss. English-Swahili, preset tiny, greedy output of 500
# lines: at 0.99, 0.89, 0.79, 0.74 and 0.65 of it there were 500, 350, 434, 322 and 275 repetition loops, and BLEU was
# 0.02, 0.07, 0.15, 0.26 and 0.90.
WORTH_DECODING = 0.75
IDS_PER_BLOCK = 1 << 22  # ids counted at a time, so that memory-mapped ids are never in memory all at once
TOKENS, LABELS = "token frequencies", "label frequencies"

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Baseline:
    """Scores of trivial predictors on the validation data."""

    loss: float
    """Mean negative log-likelihood of the validation targets under the frequencies of the training targets."""
    frequencies: str = TOKENS
    """Description of the frequencies, such as "token frequencies"."""
    score: float | None = None
    """Score, from 0 to 100, of outputs that need no training; None if there is no such score."""
    trivial: str = ""
    """Description of these outputs, such as "copying the source"."""

    @property
    def decoding_loss(self) -> float:
        """Validation loss below which decoding is worthwhile."""
        return WORTH_DECODING * self.loss

    def problem(self, loss: float, score: float | None, score_name: str) -> str:
        """Return why a model with this loss and score has not learned its task; an empty string if it has.

        The score must be above the trivial score, and the loss clearly below that of the frequencies. A model that
        overfits may have a high loss because it is too confident. Its score is sufficient if it is at least
        `LEARNED_MARGIN` of the way from the trivial score to 100.
        """
        gain = 1.0
        if self.score is not None and score is not None:
            gain = (score - self.score) / max(1e-9, 100 - self.score)
        is_loss_better = loss < (1 - LEARNED_MARGIN) * self.loss
        if not is_loss_better and (self.score is None or score is None or gain < LEARNED_MARGIN):
            return f"validation loss {loss:.2f} is not clearly below {self.loss:.2f}, that of {self.frequencies} alone"
        if gain <= 0:
            return f"validation {score_name} {score:.2f} is not above {self.score:.2f}, the score of {self.trivial}"
        return ""


def frequency_loss(train_V: Counts, valid_V: Counts) -> float:
    """Return the cross-entropy of validation counts under training frequencies with add-one smoothing, in nats."""
    log_probs_V = np.log(train_V + 1.0) - np.log(float(train_V.sum()) + len(train_V))
    return float(-(valid_V * log_probs_V).sum() / max(1, int(valid_V.sum())))


def count_ids(ids: Iterable[int] | NDArray[np.integer], size: int) -> Counts:
    """Return how often each id occurs."""
    array = ids if isinstance(ids, np.ndarray) else np.fromiter(ids, dtype=np.int64)
    counts_V = np.zeros(size, dtype=np.int64)
    for start in range(0, len(array), IDS_PER_BLOCK):
        counts_V += np.bincount(array[start : start + IDS_PER_BLOCK], minlength=size)
    return counts_V


def count_targets(sequences: IdArrays, size: int, eos_id: int) -> Counts:
    """Return how often each token is a target; the end token is a target of every sequence."""
    counts_V = count_ids(sequences.ids, size)
    counts_V[eos_id] += len(sequences)
    sequences.release_pages()
    return counts_V


def label_baseline(train_N: NDArray[np.int64], valid_N: NDArray[np.int64], size: int, trivial: str) -> Baseline:
    """Return the baseline of label frequencies, with the accuracy of the most frequent label as its score."""
    train_V, valid_V = count_ids(train_N, size), count_ids(valid_N, size)
    score = 100.0 * int(valid_V[int(train_V.argmax())]) / max(1, len(valid_N))
    return Baseline(frequency_loss(train_V, valid_V), LABELS, score, trivial)
