"""Cross-entropy with label smoothing (section 5.4).

N sequences, T target length, M tokens that are not padding, D model width, V vocabulary
"""

from typing import NamedTuple

from torch import Tensor

from clearhead import kernels


class Loss(NamedTuple):
    """Sums over the tokens of a batch; divided by `tokens` they are means."""

    smoothed: Tensor
    """The objective of training."""
    nll: Tensor
    """Negative log-likelihood; exp(nll / tokens) is the perplexity."""
    tokens: int


def cross_entropy(
    hidden_NTD: Tensor,
    weight_VD: Tensor,
    target_NT: Tensor,
    pad_id: int,
    smoothing: float,
    bias_V: Tensor | None = None,
) -> Loss:
    """Return the loss of hidden states against the tokens that follow; padding does not count.

    With smoothing e and log p = log_softmax(hidden W^T + b), the smoothed loss of a token is
    -(1 - e) log p(target) - e * mean of log p over the vocabulary. Logits are V / D times as large as states, so they
    are computed in chunks, inside the loss.
    """
    is_token_NT = target_NT != pad_id
    target_M = target_NT[is_token_NT]
    smoothed, nll = kernels.cross_entropy(hidden_NTD[is_token_NT], weight_VD, bias_V, target_M, smoothing)
    return Loss(smoothed, nll, len(target_M))
