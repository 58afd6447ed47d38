"""Which positions may be attended to. One convention everywhere: boolean, and True means "may be attended".

B batch, S source length, T target length; 1 = broadcast
"""

import torch
from torch import Tensor


def padding_mask(ids_BS: Tensor, pad_id: int) -> Tensor | None:
    """allowed_B11S: every position that is not padding; None where there is no padding, for the faster kernel."""
    allowed_BS = ids_BS != pad_id
    return None if bool(allowed_BS.all()) else allowed_BS[:, None, None, :]


def causal_mask(num_queries: int, num_keys: int, device: torch.device | None = None) -> Tensor:
    """allowed_TS: a query sees the keys up to its own place, the last query being the last key (section 3.2.3).

    With as many keys as queries this is the lower triangle; with more, the first keys come from a cache.
    """
    allowed = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return allowed.tril(num_keys - num_queries)
