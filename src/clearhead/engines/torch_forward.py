"""A torch network at inference: its device, batches on that device, and evaluation mode.

Encoders run by torch: rows of token ids or images in, NumPy arrays out.

Rows of similar length share a batch. Results are equal in any batch up to rounding.

N rows, B rows of a batch, S length, D model width, L labels, M masked positions, V vocabulary; C channels, Y height,
X width of images

Forced decoding by torch: the log-probabilities of given targets, and the cross-attention of one decoder layer.

N pairs of a batch, T target length, S source length, H heads, V vocabulary
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.data.batching import batch_by_length, pad_rows
from clearhead.kernels import PaddedLayout
from clearhead.model.encoder_output import pool
from clearhead.model.masks import padding_mask

Batch = TypeVar("Batch")


def device_of(network: Any) -> torch.device:
    """Return the device of the network's parameters; the CPU if it has none."""
    parameters = network.parameters() if isinstance(network, nn.Module) else iter(())
    first = next(parameters, None)
    return torch.device("cpu") if first is None else first.device


def on_device(batch: Batch, device: torch.device) -> Batch:
    """Return a tensor, or a dataclass or tuple of tensors, on this device; not copied if it is there already."""
    moved: Any = batch
    if device.type == "cpu":
        return batch
    if isinstance(moved, Tensor):
        moved = moved.to(device, non_blocking=True)
    elif isinstance(moved, tuple):
        moved = tuple(on_device(part, device) for part in moved)
    elif is_dataclass(moved) and not isinstance(moved, type):
        values = {field.name: on_device(getattr(moved, field.name), device) for field in fields(moved)}
        moved = replace(moved, **values)
    return moved  # type: ignore[no-any-return]


@contextmanager
def evaluating(network: Any) -> Iterator[None]:
    """Compute without gradients and dropout, also in the middle of a training."""
    is_training = isinstance(network, nn.Module) and network.training
    with torch.inference_mode():
        if is_training:
            network.eval()
        try:
            yield
        finally:
            if is_training:
                network.train()


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
        results: list[Any] = [None] * len(rows)
        for batch, logits in self._batches(rows, lambda ids_BS: self.network.logits(self.network(ids_BS))):
            for index, one in zip(batch, logits, strict=True):
                results[index] = one if one.ndim == 1 else one[: len(rows[index])]
        return results

    def masked_lm(self, rows: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]) -> list[Floats]:
        """Return the log-probabilities at the given positions of each row, [M, V]."""
        results: list[Any] = [None] * len(rows)
        for batch in batch_by_length([len(row) for row in rows], self.batch_tokens):
            ids_BS = self._ids([rows[index] for index in batch])
            is_predicted_BS = torch.zeros(ids_BS.shape, dtype=torch.bool)
            for number, index in enumerate(batch):
                is_predicted_BS[number, list(positions[index])] = True
            with evaluating(self.network):
                hidden_MD = self.network(ids_BS, on_device(is_predicted_BS, ids_BS.device))
                log_probs_MV = _to_numpy(self.network.logits(hidden_MD).double().log_softmax(-1))
            sizes = np.cumsum([len(positions[index]) for index in batch])
            for index, one_MV in zip(batch, np.split(log_probs_MV, sizes[:-1]), strict=True):
                results[index] = one_MV
        return results

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
                for batch in batch_by_length([len(row) for row in rows], self.batch_tokens)
            ]

    def _ids(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return ids_BS, padded at the end, on the network's device."""
        ids_BS = torch.from_numpy(pad_rows(rows, self.network.config.pad_id))
        return on_device(ids_BS, device_of(self.network))


def _to_numpy(tensor: Tensor) -> Floats:
    array: Floats = tensor.float().cpu().numpy()
    return array


_Floats = NDArray[np.float32]
Scores = tuple[_Floats, _Floats | None]

MAX_NUMBERS = 1 << 24  # logits or attention weights of a batch: 64 MiB
MIN_NUMBERS = 4096  # per token, for the activations of the layers


class TorchScoringEngine:
    """Scoring engine over a torch network that generates text, from a source or as a language model."""

    def __init__(self, network: Any) -> None:
        self.network = network

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        attention_layer: int | None = None,
    ) -> list[Scores]:
        """Return for each pair the log-probabilities [T] of the target tokens, given the source and those before.

        With a decoder layer also its cross-attention [H, T, S]: row t belongs to the step that predicts target token t.
        Sources are the inputs of the encoder, targets the expected outputs; both include their end token but no start
        token. A language model predicts target token t from source tokens 0 to t.
        """
        config = self.network.config
        numbers = MIN_NUMBERS if attention_layer is None else max(MIN_NUMBERS, config.num_heads * _longest(sources))
        numbers = max(numbers, config.vocab_size)
        costs = [max(len(pair[0]), len(pair[1])) * numbers for pair in zip(sources, targets, strict=True)]
        results: dict[int, Scores] = {}
        for batch in batch_by_length(costs, MAX_NUMBERS):
            scored = self._score([sources[i] for i in batch], [targets[i] for i in batch], attention_layer)
            results.update(zip(batch, scored, strict=True))
        return [results[index] for index in range(len(sources))]

    def _score(
        self, sources: list[Sequence[int]], targets: list[Sequence[int]], attention_layer: int | None
    ) -> list[Scores]:
        """Return the results of one batch."""
        config, device = self.network.config, device_of(self.network)
        inputs = [[config.decoder_start_id, *target[:-1]] for target in targets]
        src_NS, tgt_in_NT, tgt_out_NT = (
            torch.from_numpy(pad_rows(rows, config.pad_id)).to(device) for rows in (sources, inputs, targets)
        )
        with evaluating(self.network):
            weights_NHTS = None
            if config.family == "decoder":
                logits_NTV = self.network.logits(self.network(src_NS))
            elif attention_layer is None:
                logits_NTV = self.network.logits(self.network(src_NS, tgt_in_NT))
            else:
                _, state = self.network.start(self.network.encode(src_NS), 1)
                step = self.network.step(tgt_in_NT, state, want_attention=True)
                logits_NTV = step.logits_RTV
                weights_NHTS = step.attention[attention_layer].cross_RHTS.float().cpu().numpy()
            log_probs_NTV = logits_NTV.float().log_softmax(-1)
            log_probs_NT = log_probs_NTV.gather(2, tgt_out_NT[:, :, None])[:, :, 0].cpu().numpy()
        results = []
        for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
            weights_HTS = None if weights_NHTS is None else weights_NHTS[number][:, : len(target), : len(source)]
            results.append((log_probs_NT[number, : len(target)], weights_HTS))
        return results


def _longest(sources: Sequence[Sequence[int]]) -> int:
    return max(map(len, sources), default=0)
