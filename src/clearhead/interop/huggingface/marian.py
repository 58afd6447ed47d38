"""Marian (post-norm) and Pegasus (pre-norm, with final norms): translation models with the same tensor names.

Positions are sinusoidal, or learned if the checkpoint contains another table.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Literal

import torch
from torch import Tensor

from clearhead.config import Config, ModelConfig
from clearhead.errors import InteropError
from clearhead.interop.checkpoint_tensors import CheckpointTensors
from clearhead.interop.huggingface.model_format import ConfigKey, ModelFormat
from clearhead.interop.settings import Settings, SettingsReader, equal_head_widths
from clearhead.interop.weight_mapping import TensorLink, WeightMapping, attention_links, linear_links
from clearhead.model.positions import sinusoids

Placement = Literal["pre", "post"]
STACKS = (("encoder", "source_embedding"), ("decoder", "target_embedding"))
_WIDTH_KEY = ConfigKey("d_model", 1024)
_POSITIONS_KEY = ConfigKey("max_position_embeddings", 1024)


def _reader(placement: Placement) -> Callable[[SettingsReader, CheckpointTensors, str], Settings]:
    """Return the function `ModelFormat.read_settings` of a family with pre-norm or post-norm layers."""

    def read(options: SettingsReader, tensors: CheckpointTensors, task: str) -> Settings:
        for name in ("ffn_dim", "attention_heads"):
            options.require(**{f"decoder_{name}": options.get(f"encoder_{name}")})
        options.require(tie_word_embeddings=True)
        vocab_size = options.positive_int("vocab_size")
        is_shared = bool(options.get("share_encoder_decoder_embeddings", True))
        return {
            # Marian models are trained on single sentences, Pegasus on documents.
            "data": {
                "max_tokens": _POSITIONS_KEY.read(options),
                "split": "sentences" if placement == "post" else "none",
            },
            "model": {
                **_read_positions(options, tensors),
                "tied_embeddings": "all" if is_shared else "target",
                "scale_embeddings": bool(options.get("scale_embedding", False)),
                "output_bias": "final_logits_bias" in tensors.shapes,
                "vocab_size": vocab_size if is_shared else options.positive_int("decoder_vocab_size", vocab_size),
                "source_vocab_size": 0 if is_shared else vocab_size,
                "decoder_start_id": options.token_id("decoder_start_token_id", options.token_id("pad_token_id", 0)),
            },
        }

    return read


def _read_positions(options: SettingsReader, tensors: CheckpointTensors) -> Settings:
    """Return the settings of the positions: the layout of sinusoids, or learned positions if the table is another."""
    names = [f"model.{stack}.embed_positions.weight" for stack, _ in STACKS]
    present = [name for name in names if name in tensors.shapes]
    if not present:
        return {"positions": "sinusoidal", "sinusoidal_layout": "concatenated"}
    shape = _POSITIONS_KEY.read(options), _WIDTH_KEY.read(options)
    if len(present) != 2 or any(tensors.shapes[name] != shape for name in present):
        raise InteropError(
            f"{options.name}: expected two position tables of shape {shape}, found {', '.join(present)} of shape "
            f"{' and '.join(str(tensors.shapes[name]) for name in present)}"
        )
    tables = [tensors.get(name).float() for name in present]
    for layout in ("concatenated", "interleaved", "fairseq"):
        if all(torch.allclose(table, sinusoids(*shape, layout), atol=1e-6) for table in tables):
            return {"positions": "sinusoidal", "sinusoidal_layout": layout}
    return {"positions": "learned"}


def _write_settings(config: Config) -> Settings:
    model = config.model
    return {
        "decoder_attention_heads": model.num_heads,
        "decoder_ffn_dim": model.feed_forward_dim,
        "scale_embedding": model.scale_embeddings,
        "vocab_size": model.input_vocab_size,
        "forced_eos_token_id": model.eos_id,
        "decoder_start_token_id": model.decoder_start_id,
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
    }


def _write_marian_settings(config: Config) -> Settings:
    model = config.model
    return _write_settings(config) | {
        "share_encoder_decoder_embeddings": model.tied_embeddings == "all",
        "decoder_vocab_size": model.vocab_size,
    }


def _weight_mapping(config: Config, tensor_names: Collection[str] = ()) -> WeightMapping:
    model = config.model
    links = [*_embedding_links(model)]
    for stack, num_layers in (("encoder", model.num_encoder_layers), ("decoder", model.num_decoder_layers)):
        for number in range(num_layers):
            links += layer_links(f"{stack}.layers.{number}", f"model.{stack}.layers.{number}", stack)
        if model.has_final_norm:
            links += linear_links(f"{stack}.norm", f"model.{stack}.layer_norm")
    if model.output_bias:
        links.append(TensorLink("output.bias", "final_logits_bias", "reshaped", (1, model.vocab_size)))
    shared = "model.shared.weight"
    copies = {f"model.{stack}.embed_tokens.weight": shared for stack, _ in STACKS} | {"lm_head.weight": shared}
    if model.tied_embeddings == "target":
        copies = {"lm_head.weight": "model.decoder.embed_tokens.weight"}
    ignored = r"(?!)" if model.positions == "learned" else r"model\.(en|de)coder\.embed_positions\.weight"
    return WeightMapping(links, copies, ignored)


def _embedding_links(model: ModelConfig) -> Iterator[TensorLink]:
    if model.tied_embeddings == "all":
        yield TensorLink("source_embedding.tokens.weight", "model.shared.weight")
    for stack, local in STACKS:
        if model.tied_embeddings == "target":
            yield TensorLink(f"{local}.tokens.weight", f"model.{stack}.embed_tokens.weight")
        if model.positions == "learned":
            yield TensorLink(f"{local}.positions.weight", f"model.{stack}.embed_positions.weight")


def layer_links(local: str, external: str, stack: str) -> Iterator[TensorLink]:
    """Yield the links of one layer of the encoder or decoder; fairseq has the same names."""
    for name, module in (("self_attention", "self_attn"), ("cross_attention", "encoder_attn")):
        if name == "self_attention" or stack == "decoder":
            projections = [f"{external}.{module}.{letter}_proj" for letter in "qkv"]
            yield from attention_links(f"{local}.{name}", projections, f"{external}.{module}.out_proj")
            yield from linear_links(f"{local}.{name}_residual.norm", f"{external}.{module}_layer_norm")
    yield from linear_links(f"{local}.feed_forward.w1", f"{external}.fc1")
    yield from linear_links(f"{local}.feed_forward.w2", f"{external}.fc2")
    yield from linear_links(f"{local}.feed_forward_residual.norm", f"{external}.final_layer_norm")


def _derived_tensors(config: Config) -> dict[str, Tensor]:
    """Return the position tables of sinusoids, and an output bias of zeros for a model without one."""
    model = config.model
    tensors: dict[str, Tensor] = {}
    if model.positions == "sinusoidal":
        table = sinusoids(model.max_positions, model.model_dim, model.sinusoidal_layout)
        tensors = {f"model.{stack}.embed_positions.weight": table.clone() for stack, _ in STACKS}
    if not model.output_bias:
        tensors["final_logits_bias"] = torch.zeros(1, model.vocab_size)
    return tensors


def _supported_settings(config: Config, placement: Placement, tied_embeddings: tuple[str, ...]) -> Settings:
    return {
        "final_norm": (None, placement == "pre"),
        "positions": ("sinusoidal", "learned"),
        "tied_embeddings": tied_embeddings,
        **equal_head_widths(config.model),
    }


_CONSTANTS = {
    "family": "transformer",
    "input": "tokens",
    "norm": "layer",
    "norm_epsilon": 1e-5,
    "embedding_norm": False,
    "scale_attention": True,
    "scale_output": False,
    "gated": False,
    "bias": True,
}
_KEYS = {
    "num_encoder_layers": ConfigKey("encoder_layers", 12),
    "num_decoder_layers": ConfigKey("decoder_layers", 12),
    "model_dim": _WIDTH_KEY,
    "feed_forward_dim": ConfigKey("encoder_ffn_dim", 4096),
    "num_heads": ConfigKey("encoder_attention_heads", 16),
    "dropout": ConfigKey("dropout", 0.1, "number"),
    "activation": ConfigKey("activation_function", "gelu", "activation"),
    "max_positions": _POSITIONS_KEY,
    "pad_id": ConfigKey("pad_token_id", 0, "token_id"),
    "eos_id": ConfigKey("eos_token_id", 0, "token_id"),
}


def _family(
    name: str, title: str, architecture: str, placement: Placement, tied_embeddings: tuple[str, ...],
    write_settings: Callable[[Config], Settings],
) -> ModelFormat:  # fmt: skip
    return ModelFormat(
        name,
        title,
        architectures={architecture: "translate"},
        constants=_CONSTANTS | {"norm_placement": placement},
        keys=_KEYS,
        read_settings=_reader(placement),
        write_settings=write_settings,
        supported_settings=lambda config: _supported_settings(config, placement, tied_embeddings),
        weight_mapping=_weight_mapping,
        derived_tensors=_derived_tensors,
        attention_dropout_key="attention_dropout",
    )


MARIAN = _family("marian", "Marian", "MarianMTModel", "post", ("all", "target"), _write_marian_settings)
PEGASUS = _family("pegasus", "Pegasus", "PegasusForConditionalGeneration", "pre", ("all",), _write_settings)
