"""Inference with torch networks: generator steps for the search, encoders of texts and images, and forced decoding.

Inputs are token ids or images, outputs NumPy arrays. Encoders and forced decoding batch rows of similar length; their
results are equal in any batch up to rounding.

N sentences or rows of input, B rows of a batch, R rows (hypotheses), S source length, T target length or tokens per
call, D model width, H heads, V vocabulary, U tokens of a shortlist, K best tokens, L labels, M masked positions,
C channels, Y height, X width of images
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.data.batching import batch_by_length, pad_rows
from clearhead.decoding.generator import Bools, Floats, Ints, Sources, Step
from clearhead.kernels import PaddedLayout
from clearhead.model.encoder_output import pool
from clearhead.model.masks import padding_mask


@dataclass(frozen=True)
class TorchState:
    """State of the module, and its shortlist: the tokens, and which of them are forbidden in each row."""

    inner: Any
    num_rows: int
    tokens_U: Tensor | None = None
    forbidden_RU: Tensor | None = None


class TorchGenerator:
    """Generator over a torch module with `encode`, `start`, `step` and `reorder`.

    Log-probabilities are computed by torch. From a GPU, only the best tokens are transferred if the search needs no
    others; ties with the last of them are then broken arbitrarily.
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
        next_state = replace(state, inner=step.state)
        if num_best is None or self.transfers_all or all_positions or num_best >= log_probs_RTV.shape[2]:
            return Step(_on_host(log_probs_RTV), next_state, cross_RHTS)
        values_R1K, tokens_R1K = log_probs_RTV.topk(num_best)
        tokens_R1K, order_R1K = tokens_R1K.sort(-1)
        return Step(_on_host(values_R1K.gather(-1, order_R1K)), next_state, cross_RHTS, tokens_R1K[:, 0].cpu().numpy())

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
    """Disable gradients and dropout inside the block, and restore the mode afterwards."""
    is_training = isinstance(network, nn.Module) and network.training
    with torch.inference_mode():
        if is_training:
            network.eval()
        try:
            yield
        finally:
            if is_training:
                network.train()


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
            for index, row_logits in zip(batch, logits, strict=True):
                results[index] = row_logits if row_logits.ndim == 1 else row_logits[: len(rows[index])]
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
            for index, row_MV in zip(batch, np.split(log_probs_MV, sizes[:-1]), strict=True):
                results[index] = row_MV
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


Scores = tuple[Floats, Floats | None]

MAX_NUMBERS = 1 << 24  # maximum number of logits or attention weights of a batch: 64 MiB
MIN_NUMBERS = 4096  # numbers per token that the activations of the layers take, even with a small vocabulary


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
        """Return for each pair the log-probabilities [T] of the target tokens, given the source and the tokens before.

        If a decoder layer is given, its cross-attention [H, T, S] is also returned; row t predicts target token t.
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
