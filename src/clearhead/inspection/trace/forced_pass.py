"""Forced pass: one forward pass over an input and a given output (teacher forcing), at all positions in parallel.

Networks that generate text are called through the `Generator` interface, the others by `network(src)` and `logits`.

R rows (1), T output positions, V vocabulary or labels
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import DataError, InspectionError


@dataclass(frozen=True)
class ForcedPass:
    """Logits of one forced pass."""

    inputs: list[int]
    """Input tokens of the decoder, beginning with the start token; empty for networks without a decoder."""
    logits_TV: Tensor
    """Logits after each decoder input; without a decoder, of each predicted label."""
    is_prompt: bool
    """Whether the source is a prompt, whose tokens are the first inputs of the decoder."""


def has_decoder(network: nn.Module) -> bool:
    """Return whether a network generates text; classifiers, taggers, masked and embedding models have a `backbone`."""
    return not hasattr(network, "backbone")


def forced_pass(network: Any, src: Tensor, outputs: Sequence[int]) -> ForcedPass:
    """Return the logits for an input; a decoder is forced to `outputs`, networks without a decoder ignore them.

    Raises DataError if the outputs have more tokens than the decoder has positions.
    """
    if not has_decoder(network):
        hidden = network(src)
        if not hasattr(network, "logits"):  # an embedding model
            return ForcedPass([], hidden.new_zeros(0, 1), is_prompt=False)
        logits = network.logits(hidden)
        return ForcedPass([], logits[0].view(-1, logits.shape[-1]), is_prompt=False)
    first_RT, state = network.start(network.encode(src), 1)
    forced_RT = torch.tensor([list(outputs[:-1])], dtype=first_RT.dtype)
    tokens_RT = torch.cat((first_RT, forced_RT), 1)
    limit = network.config.max_positions
    if tokens_RT.shape[1] > limit:
        raise DataError(f"the target has {tokens_RT.shape[1]:,} tokens, the model accepts {limit:,}; shorten it")
    step = network.step(tokens_RT, state)  # search calls the same method with one token at a time
    is_prompt = first_RT.shape == src.shape and bool((first_RT == src).all())
    return ForcedPass(tokens_RT[0].tolist(), step.logits_RTV[0], is_prompt)


def require_outputs(num_outputs: int) -> None:
    """Raise InspectionError if `num_outputs` is 0, because embedding models have no output probabilities."""
    if not num_outputs:
        raise InspectionError(
            "expected a model with output probabilities, got an embedding model; inspect its attention, or fine-tune "
            "a classifier from it (train --task classify --from DIR)"
        )


def output_log_probs(network: Any, src: Tensor, outputs: Sequence[int]) -> Tensor:
    """Return log_probs_T of the given outputs; a prompt before them is not included."""
    logits_TV = forced_pass(network, src, outputs).logits_TV
    require_outputs(len(logits_TV))
    log_probs_TV = logits_TV.double().log_softmax(-1)[-len(outputs) :]
    return log_probs_TV[range(len(outputs)), list(outputs)]
