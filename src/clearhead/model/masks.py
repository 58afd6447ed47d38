"""Which positions may be attended to. One convention everywhere: boolean, and True means "may be attended".

Where positions speak through the scores, a mask and their bias go to attention together, as one additive float mask.

B batch, H heads, S source length or keys, T target length or queries; 1 = broadcast
"""

import torch
from torch import Tensor


def padding_mask(ids_BS: Tensor, pad_id: int) -> Tensor | None:
    """allowed_B11S: True at every position that is not padding; None if there is no padding, for the faster kernel.

    An exported graph always has the mask, because it must not depend on the values of the example inputs.
    """
    allowed_BS = ids_BS != pad_id
    has_padding = torch.compiler.is_exporting() or not bool(allowed_BS.all())
    return allowed_BS[:, None, None, :] if has_padding else None


def causal_mask(num_queries: int, num_keys: int, device: torch.device | None = None) -> Tensor:
    """allowed_TS: a query sees the keys up to its own place, the last query being the last key (section 3.2.3).

    With as many keys as queries this is the lower triangle; with more, the first keys come from a cache.
    """
    allowed = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return allowed.tril(num_keys - num_queries)


def document_mask(documents_BT: Tensor) -> Tensor:
    """allowed_B1TT: a query sees the keys of its own document, where several stand in one row."""
    return documents_BT[:, None, :, None] == documents_BT[:, None, None, :]


def both(allowed: Tensor | None, also: Tensor) -> Tensor:
    """What two masks allow, of which the first may be missing."""
    return also if allowed is None else allowed & also


def additive_mask(bias_1HTS: Tensor, allowed: Tensor | None) -> Tensor:
    """What is added to scores: the bias where a key may be attended, minus infinity elsewhere."""
    return bias_1HTS if allowed is None else bias_1HTS.masked_fill(~allowed, float("-inf"))


def mask_scores(scores_BHTS: Tensor, mask: Tensor | None) -> Tensor:
    """Scores as the softmax gets them: what a boolean mask forbids is minus infinity; an additive mask is added."""
    if mask is None:
        return scores_BHTS
    return scores_BHTS.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores_BHTS + mask
