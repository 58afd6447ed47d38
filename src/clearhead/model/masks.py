"""Masks: True where a position may be attended to. Causality (section 3.2.3) is part of `kernels.AttentionLayout`.

B batch, S keys, T queries; 1 = broadcast
"""

import torch
from torch import Tensor


def padding_mask(ids_BS: Tensor, pad_id: int) -> Tensor | None:
    """Return allowed_B11S, False at padding; None if there is none, for the faster kernel.

    A graph for export always has the mask, because it must not depend on the values of the example.
    """
    allowed_BS = ids_BS != pad_id
    has_padding = torch.compiler.is_exporting() or not bool(allowed_BS.all())
    return allowed_BS[:, None, None, :] if has_padding else None


def document_mask(documents_BT: Tensor) -> Tensor:
    """Return allowed_B1TT: a token attends to its own document, where a row has several."""
    return documents_BT[:, None, :, None] == documents_BT[:, None, None, :]
