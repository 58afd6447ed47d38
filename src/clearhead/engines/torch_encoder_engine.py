"""Encoders run by torch: rows of token ids or images in, NumPy arrays out.

Rows of similar length share a batch. Results are equal in any batch up to rounding.

N rows, B rows of a batch, S length, D model width, L labels, M masked positions, V vocabulary; C channels, Y height,
X width of images
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.data.batching import length_batches, pad
from clearhead.engines.torch_network import device_of, evaluating, on_device
from clearhead.kernels import PaddedLayout
from clearhead.model.encoder_output import pool
from clearhead.model.masks import padding_mask

Floats = NDArray[np.float32]

BATCH_TOKENS = 4096


class TorchEncoderEngine:
    """Encoder engine over a torch network: an encoder with its output layer, or a Transformer's encoder alone."""

    def __init__(self, network: Any, batch_tokens: int = BATCH_TOKENS) -> None:
        """`batch_tokens`: largest number of tokens per batch, padding included."""
        self.network = network
        self.batch_tokens = batch_tokens

    def pooled(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Return one vector per row, pooled as the model is configured, [N, D]."""
        return self._stack(rows, lambda ids_BS: self.network.backbone(ids_BS).pooled_BD)

    def mean_states(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Return the mean of the encoder states of each row, [N, D]."""

        def mean(ids_BS: Tensor) -> Tensor:
            return pool(self._states(ids_BS), ids_BS != self.network.config.pad_id, "mean")

        return self._stack(rows, mean)

    def logits(self, rows: Sequence[Sequence[int]]) -> list[Floats]:
        """Return the logits of each row: [L], or [S, L] of a token classifier."""
        found: list[Any] = [None] * len(rows)
        for batch, logits in self._batches(rows, lambda ids_BS: self.network.logits(self.network(ids_BS))):
            for index, one in zip(batch, logits, strict=True):
                found[index] = one if one.ndim == 1 else one[: len(rows[index])]
        return found

    def masked_lm(self, rows: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]) -> list[Floats]:
        """Return the log-probabilities at the given positions of each row, [M, V]."""
        found: list[Any] = [None] * len(rows)
        for batch in length_batches([len(row) for row in rows], self.batch_tokens):
            ids_BS = self._ids([rows[index] for index in batch])
            is_asked_BS = torch.zeros(ids_BS.shape, dtype=torch.bool)
            for number, index in enumerate(batch):
                is_asked_BS[number, list(positions[index])] = True
            with evaluating(self.network):
                hidden_MD = self.network(ids_BS, on_device(is_asked_BS, ids_BS.device))
                log_probs_MV = _to_numpy(self.network.logits(hidden_MD).double().log_softmax(-1))
            sizes = np.cumsum([len(positions[index]) for index in batch])
            for index, one_MV in zip(batch, np.split(log_probs_MV, sizes[:-1]), strict=True):
                found[index] = one_MV
        return found

    def image_logits(self, pixels_NCYX: Floats) -> Floats:
        """Return the logits of a batch of images whose values are from -1 to 1, [N, L]."""
        with evaluating(self.network):
            hidden_ND = self.network(on_device(torch.from_numpy(pixels_NCYX), device_of(self.network)))
            return _to_numpy(self.network.logits(hidden_ND))

    def _states(self, ids_BS: Tensor) -> Tensor:
        """Return the encoder states, [B, S, D]."""
        if hasattr(self.network, "backbone"):
            states_BSD: Tensor = self.network.backbone(ids_BS).states_BSD
            return states_BSD
        allowed_B11S = padding_mask(ids_BS, self.network.config.pad_id)
        layout = PaddedLayout.of(ids_BS.shape[1], ids_BS.device, allowed_B11S=allowed_B11S)
        encoded_BSD: Tensor = self.network.encoder(self.network.source_embedding(ids_BS, layout), layout)[0]
        return encoded_BSD

    def _stack(self, rows: Sequence[Sequence[int]], compute: Callable[[Tensor], Tensor]) -> Floats:
        vectors_ND = np.zeros((len(rows), self.network.config.model_dim), dtype=np.float32)
        for batch, vectors_BD in self._batches(rows, compute):
            vectors_ND[batch] = vectors_BD
        return vectors_ND

    def _batches(
        self, rows: Sequence[Sequence[int]], compute: Callable[[Tensor], Tensor]
    ) -> list[tuple[list[int], Floats]]:
        """Return the indices of each batch with its result."""
        with evaluating(self.network):
            return [
                (batch, _to_numpy(compute(self._ids([rows[index] for index in batch]))))
                for batch in length_batches([len(row) for row in rows], self.batch_tokens)
            ]

    def _ids(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return ids_BS, padded at the end, on the network's device."""
        ids_BS = torch.from_numpy(pad(rows, self.network.config.pad_id))
        return on_device(ids_BS, device_of(self.network))


def _to_numpy(tensor: Tensor) -> Floats:
    found: Floats = tensor.float().cpu().numpy()
    return found
