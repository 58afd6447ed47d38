"""Forced decoding by torch: the log-probabilities of given targets, and the cross-attention of one decoder layer.

N pairs of a batch, T target length, S source length, H heads, V vocabulary
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.data.batching import length_batches, pad
from clearhead.engines.torch_network import device_of, evaluating

Floats = NDArray[np.float32]
Scores = tuple[Floats, Floats | None]

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
        Sources are as the encoder reads them, targets as they are to be generated: both with their end token, neither
        with a start token. A language model predicts target token t from source tokens 0 to t.
        """
        config = self.network.config
        numbers = MIN_NUMBERS if attention_layer is None else max(MIN_NUMBERS, config.num_heads * _longest(sources))
        numbers = max(numbers, config.vocab_size)
        costs = [max(len(pair[0]), len(pair[1])) * numbers for pair in zip(sources, targets, strict=True)]
        found: dict[int, Scores] = {}
        for batch in length_batches(costs, MAX_NUMBERS):
            scored = self._score([sources[i] for i in batch], [targets[i] for i in batch], attention_layer)
            found.update(zip(batch, scored, strict=True))
        return [found[index] for index in range(len(sources))]

    def _score(
        self, sources: list[Sequence[int]], targets: list[Sequence[int]], attention_layer: int | None
    ) -> list[Scores]:
        """Return the results of one batch."""
        config, device = self.network.config, device_of(self.network)
        inputs = [[config.decoder_start_id, *target[:-1]] for target in targets]
        src_NS, tgt_in_NT, tgt_out_NT = (
            torch.from_numpy(pad(rows, config.pad_id)).to(device) for rows in (sources, inputs, targets)
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
        found = []
        for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
            weights_HTS = None if weights_NHTS is None else weights_NHTS[number][:, : len(target), : len(source)]
            found.append((log_probs_NT[number, : len(target)], weights_HTS))
        return found


def _longest(sources: Sequence[Sequence[int]]) -> int:
    return max(map(len, sources), default=0)
