"""Marian (post-norm) and Pegasus (pre-norm, with a last norm): translation models with one set of names.

Positions are sines and cosines, or any table that the file has.
"""

from collections.abc import Collection, Iterator

import torch
from torch import Tensor

from clearhead.config import Config, ModelConfig
from clearhead.errors import InteropError
from clearhead.interop.checkpoint_tensors import CheckpointTensors
from clearhead.interop.huggingface.bert import ACTIVATIONS
from clearhead.interop.huggingface.model_format import (
    ModelFormat,
    Settings,
    architecture,
    attention_dropout,
    equal_head_widths,
)
from clearhead.interop.settings import SettingsReader
from clearhead.interop.weight_mapping import TensorLink, WeightMapping, attention_links, linear_links
from clearhead.model.positions import sinusoids

STACKS = (("encoder", "source_embedding"), ("decoder", "target_embedding"))
EPSILON = 1e-5  # of their norms, always


def _read(options: SettingsReader, tensors: CheckpointTensors, placement: str) -> Settings:
    for name in ("ffn_dim", "attention_heads"):
        options.only(**{f"decoder_{name}": options.get(f"encoder_{name}")})
    vocab_size = options.number("vocab_size")
    is_shared = bool(options.get("share_encoder_decoder_embeddings", True))
    options.only(tie_word_embeddings=True)
    target_size = vocab_size if is_shared else options.number("decoder_vocab_size", vocab_size)
    places = options.number("max_position_embeddings", 1024)
    return {
        "task": "translate",
        # Marian models are trained on single sentences, Pegasus on documents.
        "data": {"max_tokens": places, "split": "sentences" if placement == "post" else "none"},
        "model": {
            "num_encoder_layers": options.number("encoder_layers", 12),
            "num_decoder_layers": options.number("decoder_layers", 12),
            "model_dim": options.number("d_model", 1024),
            "feed_forward_dim": options.number("encoder_ffn_dim", 4096),
            "num_heads": options.number("encoder_attention_heads", 16),
            "dropout": options.small("dropout", 0.1),
            "norm_placement": placement,
            "activation": options.activation("activation_function", "gelu"),
            "max_positions": places,
            **_positions(tensors, places, options),
            "tied_embeddings": "all" if is_shared else "target",
            "scale_embeddings": bool(options.get("scale_embedding", False)),
            "output_bias": "final_logits_bias" in tensors.shapes,
            "vocab_size": target_size,
            "source_vocab_size": 0 if is_shared else vocab_size,
            "pad_id": options.identifier("pad_token_id", 0),
            "decoder_start_id": options.identifier("decoder_start_token_id", options.identifier("pad_token_id", 0)),
            "eos_id": options.identifier("eos_token_id", 0),
        },
    }


def _positions(tensors: CheckpointTensors, places: int, options: SettingsReader) -> Settings:
    """Which sines and cosines the file's tables hold; any others are taken as learned."""
    names = [f"model.{stack}.embed_positions.weight" for stack, _ in STACKS]
    there = [name for name in names if name in tensors.shapes]
    if not there:
        return {"positions": "sinusoidal", "sinusoidal_layout": "concatenated"}
    shape = places, options.number("d_model", 1024)
    if len(there) != 2 or any(tensors.shapes[name] != shape for name in there):
        raise InteropError(f"{', '.join(there)}: expected two tables of shape {shape}, as {options.name} asks for")
    tables = [tensors.get(name).float() for name in there]
    for layout in ("concatenated", "interleaved", "fairseq"):
        if all(torch.allclose(table, sinusoids(*shape, layout), atol=1e-6) for table in tables):
            return {"positions": "sinusoidal", "sinusoidal_layout": layout}
    return {"positions": "learned"}


def table(config: Config, names: Collection[str] = ()) -> WeightMapping:
    """The names."""
    model = config.model
    links = [*_embeddings(model)]
    for stack, number_of_layers in (("encoder", model.num_encoder_layers), ("decoder", model.num_decoder_layers)):
        for number in range(number_of_layers):
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


def _embeddings(model: ModelConfig) -> Iterator[TensorLink]:
    if model.tied_embeddings == "all":
        yield TensorLink("source_embedding.tokens.weight", "model.shared.weight")
    for stack, ours in STACKS:
        if model.tied_embeddings == "target":
            yield TensorLink(f"{ours}.tokens.weight", f"model.{stack}.embed_tokens.weight")
        if model.positions == "learned":
            yield TensorLink(f"{ours}.positions.weight", f"model.{stack}.embed_positions.weight")


def layer_links(ours: str, theirs: str, stack: str) -> Iterator[TensorLink]:
    """One layer of either stack; fairseq has the same names."""
    for name, look in (("self_attention", "self_attn"), ("cross_attention", "encoder_attn")):
        if name == "self_attention" or stack == "decoder":
            parts = [f"{theirs}.{look}.{part}_proj" for part in "qkv"]
            yield from attention_links(f"{ours}.{name}", parts, f"{theirs}.{look}.out_proj")
            yield from linear_links(f"{ours}.{name}_residual.norm", f"{theirs}.{look}_layer_norm")
    yield from linear_links(f"{ours}.feed_forward.w1", f"{theirs}.fc1")
    yield from linear_links(f"{ours}.feed_forward.w2", f"{theirs}.fc2")
    yield from linear_links(f"{ours}.feed_forward_residual.norm", f"{theirs}.final_layer_norm")


def _required(config: Config, placement: str, embeddings: tuple[str, ...]) -> Settings:
    return {
        "family": "transformer",
        "input": "tokens",
        "norm": "layer",
        "norm_placement": placement,
        "norm_epsilon": EPSILON,
        "final_norm": (None, placement == "pre"),
        "embedding_norm": False,
        "positions": ("sinusoidal", "learned"),
        "scale_attention": True,
        "scale_output": False,
        "tied_embeddings": embeddings,
        "gated": False,
        "bias": True,
        **equal_head_widths(config.model),
    }


def required_marian(config: Config) -> Settings:
    """Return what Marian requires of the model section."""
    return _required(config, "post", ("all", "target"))


def required_pegasus(config: Config) -> Settings:
    """Return what Pegasus requires of the model section."""
    return _required(config, "pre", ("all",))


def _write(config: Config) -> Settings:
    model = config.model
    return {
        "d_model": model.model_dim,
        "encoder_layers": model.num_encoder_layers,
        "decoder_layers": model.num_decoder_layers,
        **{f"{stack}_attention_heads": model.num_heads for stack, _ in STACKS},
        **{f"{stack}_ffn_dim": model.feed_forward_dim for stack, _ in STACKS},
        "activation_function": ACTIVATIONS[model.activation],
        "dropout": model.dropout,
        **attention_dropout(model, "attention_dropout"),
        "max_position_embeddings": model.max_positions,
        "scale_embedding": model.scale_embeddings,
        "vocab_size": model.read_vocab_size,
        "pad_token_id": model.pad_id,
        "eos_token_id": model.eos_id,
        "forced_eos_token_id": model.eos_id,
        "decoder_start_token_id": model.decoder_start_id,
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
    }


def extra(config: Config) -> dict[str, Tensor]:
    """What they keep as tensors and we compute: tables of positions, and a bias of zeros where there is none."""
    model = config.model
    found: dict[str, Tensor] = {}
    if model.positions == "sinusoidal":
        places = sinusoids(model.max_positions, model.model_dim, model.sinusoidal_layout)
        found = {f"model.{stack}.embed_positions.weight": places.clone() for stack, _ in STACKS}
    if not model.output_bias:
        found["final_logits_bias"] = torch.zeros(1, model.vocab_size)
    return found


def read_marian(options: SettingsReader, tensors: CheckpointTensors) -> Settings:
    """Our settings."""
    architecture(options, {"MarianMTModel": "translate"})
    return _read(options, tensors, "post")


def write_marian(config: Config) -> Settings:
    """Their settings."""
    own = {
        "share_encoder_decoder_embeddings": config.model.tied_embeddings == "all",
        "decoder_vocab_size": config.model.vocab_size,
    }
    return {"architectures": ["MarianMTModel"], "model_type": "marian", **_write(config), **own}


def read_pegasus(options: SettingsReader, tensors: CheckpointTensors) -> Settings:
    """Our settings."""
    architecture(options, {"PegasusForConditionalGeneration": "translate"})
    return _read(options, tensors, "pre")


def write_pegasus(config: Config) -> Settings:
    """Their settings."""
    named = {"architectures": ["PegasusForConditionalGeneration"], "model_type": "pegasus"}
    return named | _write(config)


MARIAN = ModelFormat("marian", "Marian", required_marian, read_marian, table, write_marian, extra)
PEGASUS = ModelFormat("pegasus", "Pegasus", required_pegasus, read_pegasus, table, write_pegasus, extra)
