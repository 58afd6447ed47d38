"""Small networks with every option of the Transformer, for the tests of what each option does.

Combinations are computed in doubles, because a group norm of two channels amplifies rounding errors if the values of
the channels are nearly equal.
"""

import itertools
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.kernels import PaddedLayout
from clearhead.model.language_model import LanguageModel
from clearhead.model.text_encoder import TextEncoder
from clearhead.model.transformer import Transformer

# N sentences, S source length, T target length, V vocabulary, D model width, H heads, K and E head widths, F inner
# width: no two alike
N, S, T, V, D, H, K, E, F = 2, 7, 5, 23, 22, 3, 4, 13, 17


Module = TypeVar("Module", bound=nn.Module)


SIZES = {
    "num_encoder_layers": 2, "num_decoder_layers": 2, "model_dim": D, "feed_forward_dim": F, "num_heads": H,
    "key_dim": K, "value_dim": E, "norm_groups": 11, "vocab_size": V, "max_positions": 19, "relative_buckets": 6,
    "relative_max_distance": 5,
}  # fmt: skip


POSITIONS = ("sinusoidal", "learned", "relative", "rotary", "none")


COMBINATIONS: list[dict[str, Any]] = [
    {"positions": positions, "norm": norm, "norm_placement": placement}
    for positions, norm, placement in itertools.product(POSITIONS, ("layer", "rms", "batch", "group"), ("pre", "post"))
] + [
    {"activation": "gelu_tanh", "gated": True, "bias": False},
    {"activation": "gelu", "scale_embeddings": False, "embedding_norm": True, "tied_embeddings": "none"},
    {"positions": "relative", "scale_attention": False, "scale_embeddings": False},
    *({"norm": norm, "norm_placement": placement} for norm in ("sample", "none") for placement in ("pre", "post")),
    *({"residual": False, "norm_placement": placement} for placement in ("pre", "post")),
    {"activation": "silu", "gated": True},
    {"sinusoidal_layout": "fairseq", "norm_placement": "post", "final_norm": True},
    # With values as wide as keys torch takes another kernel.
    *({"positions": positions, "num_heads": 11, "key_dim": 0, "value_dim": 0} for positions in POSITIONS),
]


each_combination = pytest.mark.parametrize("options", COMBINATIONS, ids=lambda each: "-".join(map(str, each.values())))


def config(**options: Any) -> ModelConfig:
    """Return a small config with some options."""
    return ModelConfig.model_validate({**SIZES, **options})


def with_random_weights(module: Module) -> Module:
    """Return the module in evaluation mode with random weights and running statistics, none of them 0 or 1."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_()
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 2.0)
    return module.eval()


def padded_layout(length: int, start: int = 0, allowed_B11S: Tensor | None = None) -> PaddedLayout:
    """Return the layout of sequences of one length."""
    return PaddedLayout.of(length, torch.device("cpu"), start, allowed_B11S)


def ids(rows: int, length: int) -> Tensor:
    """Return random tokens that are not special."""
    return torch.randint(4, V, (rows, length))


def close(actual: Tensor, expected: Tensor, is_touchy: bool = False) -> None:
    """Compare tensors; `is_touchy` raises the tolerance, because norms over few channels amplify rounding errors."""
    tolerance = 1e-5 if expected.dtype != torch.float64 else 1e-7 if is_touchy else 1e-10
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def transformer(options: dict[str, Any]) -> Transformer:
    return with_random_weights(Transformer(config(**options, scale_output="scale_attention" in options))).double()


def language_model(options: dict[str, Any]) -> LanguageModel:
    return with_random_weights(LanguageModel(config(**options, family="decoder"))).double()


def text_encoder(options: dict[str, Any]) -> TextEncoder:
    return with_random_weights(TextEncoder(config(**options, family="encoder", head="classification"))).double()


def sources() -> Tensor:
    """Return sources with padding in one row."""
    src_NS = ids(N, S)
    src_NS[1, 4:] = 0
    return src_NS


def steps(model: Any, first: Tensor, state: Any, tgt_NT: Tensor) -> Tensor:
    """Return the logits of steps of one token and of several tokens."""
    results = []
    for tokens in (first, tgt_NT[:, :1], tgt_NT[:, 1:3], tgt_NT[:, 3:]):
        step = model.step(tokens, state)
        results.append(step.logits_RTV)
        state = step.state
    return torch.cat(results, 1)
