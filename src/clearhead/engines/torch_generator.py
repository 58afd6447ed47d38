"""Adapter: a torch module as a generator for the search.

N sentences, R rows, S source length, T tokens per call, V vocabulary, U tokens of a shortlist, K best tokens
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.decoding.generator import Bools, Floats, Ints, Sources, Step


@dataclass(frozen=True)
class TorchState:
    """State of the module, and the shortlist of its steps: the tokens, and which of them each row may not have."""

    inner: Any
    num_rows: int
    tokens_U: Tensor | None = None
    forbidden_RU: Tensor | None = None


class TorchGenerator:
    """Generator over a torch module with `encode`, `start`, `step` and `reorder`.

    Log-probabilities are computed by torch. From a GPU only the best tokens are transferred where the search needs no
    others; there, ties with the last of them are broken arbitrarily.
    """

    def __init__(
        self,
        network: Any,
        pad_id: int,
        device: torch.device | str = "cpu",
        transfers_all: bool | None = None,
    ) -> None:
        """`transfers_all`: whether all log-probabilities are transferred; by default on a CPU only."""
        self.network, self.pad_id, self.device = network, pad_id, torch.device(device)
        self.transfers_all = self.device.type == "cpu" if transfers_all is None else transfers_all

    @torch.inference_mode()
    def encode(self, sources: Sources) -> Any:
        """Return the encoded sources, padded at the end."""
        if isinstance(sources, np.ndarray):
            return self.network.encode(torch.from_numpy(sources).to(self.device))
        longest = max(len(source) for source in sources)
        rows = [[*source, *[self.pad_id] * (longest - len(source))] for source in sources]
        return self.network.encode(torch.tensor(rows, device=self.device))

    @torch.inference_mode()
    def start(self, memory: Any, width: int) -> tuple[Ints, TorchState]:
        """Return the first tokens of every row, and the state before them."""
        first_RT, state = self.network.start(memory, width)
        return first_RT.cpu().numpy(), TorchState(state, len(first_RT))

    @torch.inference_mode()
    def step(
        self,
        tokens_RT: Ints,
        state: TorchState,
        want_attention: bool = False,
        all_positions: bool = False,
        num_best: int | None = None,
    ) -> Step:
        """Append tokens to every row and return the log-probabilities of the next token."""
        step = self.network.step(
            torch.from_numpy(tokens_RT).to(self.device), state.inner, want_attention=want_attention
        )
        logits_RTV = step.logits_RTV if all_positions else step.logits_RTV[:, -1:]
        if state.tokens_U is not None and state.forbidden_RU is not None:
            logits_RTV = logits_RTV[..., state.tokens_U]
            logits_RTV = logits_RTV.masked_fill(state.forbidden_RU[:, None], float("-inf"))
        # In place where possible: a copy would push both out of the CPU's cache.
        out_RTV = logits_RTV if logits_RTV.is_contiguous() else torch.empty_like(logits_RTV)
        log_probs_RTV = torch.log_softmax(logits_RTV, -1, out=out_RTV)
        cross_RHTS = _cross_attention(step.attention) if want_attention else None
        after = replace(state, inner=step.state)
        if num_best is None or self.transfers_all or all_positions or num_best >= log_probs_RTV.shape[2]:
            return Step(_on_host(log_probs_RTV), after, cross_RHTS)
        values_R1K, tokens_R1K = log_probs_RTV.topk(num_best)
        tokens_R1K, order_R1K = tokens_R1K.sort(-1)
        return Step(_on_host(values_R1K.gather(-1, order_R1K)), after, cross_RHTS, tokens_R1K[:, 0].cpu().numpy())

    @torch.inference_mode()
    def reorder(self, state: TorchState, rows_R: Ints) -> TorchState:
        """Return the state with these rows in this order."""
        indices_R = torch.from_numpy(rows_R).to(self.device)
        forbidden_RU = None if state.forbidden_RU is None else state.forbidden_RU[indices_R]
        inner = self.network.reorder(state.inner, indices_R)
        return replace(state, inner=inner, num_rows=len(rows_R), forbidden_RU=forbidden_RU)

    @torch.inference_mode()
    def restrict(self, state: TorchState, tokens_U: Ints, allowed_NU: Bools) -> TorchState:
        """Return a state whose steps return log-probabilities of these tokens only."""
        forbidden_RU = torch.from_numpy(~allowed_NU.repeat(state.num_rows // len(allowed_NU), 0))
        indices_U = torch.from_numpy(tokens_U).to(self.device)
        return replace(state, tokens_U=indices_U, forbidden_RU=forbidden_RU.to(self.device))


def _cross_attention(layers: Any) -> Floats | None:
    """Return the cross-attention weights of the last layer, if the model has any."""
    if not layers or not hasattr(layers[-1], "cross_RHTS"):
        return None
    return _on_host(layers[-1].cross_RHTS)


def _on_host(values: Tensor) -> Floats:
    array: Floats = values.float().cpu().numpy()
    return array
