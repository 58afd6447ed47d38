"""Masks: True where a position may be attended to. Causality (section 3.2.3) is part of `kernels.AttentionLayout`.

B batch, S keys, T queries; 1 = broadcast
"""

import torch
from torch import Tensor


def token_mask(ids_BS: Tensor, pad_id: int) -> Tensor | None:
    """Return is_token_BS, False at padding. None without padding, because attention without a mask is faster.

    An exported graph always has the mask, because it must not depend on the values of the example.
    """
    is_token_BS = ids_BS != pad_id
    if not torch.compiler.is_exporting() and bool(is_token_BS.all()):
        return None
    return is_token_BS


def padding_mask(ids_BS: Tensor, pad_id: int) -> Tensor | None:
    """Return allowed_B11S, False at padding; None without padding."""
    is_token_BS = token_mask(ids_BS, pad_id)
    return None if is_token_BS is None else is_token_BS[:, None, None, :]


def document_mask(documents_BT: Tensor) -> Tensor:
    """Return allowed_B1TT, True where two tokens of a row belong to the same document."""
    return documents_BT[:, None, :, None] == documents_BT[:, None, None, :]
