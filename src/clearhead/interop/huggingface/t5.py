"""T5, version 1 and 1.1: text to text with relative positions, RMS norms and no biases."""

from collections.abc import Collection, Iterator

import torch

from clearhead.config import Config
from clearhead.interop.checkpoint_tensors import CheckpointTensors
from clearhead.interop.huggingface.bert import ACTIVATIONS
from clearhead.interop.huggingface.model_format import ModelFormat, Settings, architecture
from clearhead.interop.settings import SettingsReader
from clearhead.interop.weight_mapping import TensorLink, WeightMapping, attention_links, linear_links

LONGEST = 1024  # there is no table of places; longer texts than T5 was trained on are allowed up to here


def read(options: SettingsReader, tensors: CheckpointTensors) -> Settings:
    """Our settings. What version 1.1 changed is told by the output's scale, its table and the gate."""
    architecture(options, {"T5ForConditionalGeneration": "translate"})
    gate, _, name = str(options.get("feed_forward_proj", "relu")).rpartition("-")
    if gate not in ("", "gated"):
        options.choice("feed_forward_proj", "relu", {"relu": "relu", "gated-gelu": "gelu_tanh"})
    activation = SettingsReader({"activation": "gelu_new" if (gate, name) == ("gated", "gelu") else name}, options.name)
    layers = options.number("num_layers", 6)
    key_dim = options.number("d_kv", 64)
    tied = bool(options.get("tie_word_embeddings", True))
    return {
        "task": "translate",
        "data": {"max_tokens": options.number("n_positions", 512), "split": "none"},
        "model": {
            "num_encoder_layers": layers,
            "num_decoder_layers": options.number("num_decoder_layers", layers),
            "model_dim": options.number("d_model", 512),
            "feed_forward_dim": options.number("d_ff", 2048),
            "num_heads": options.number("num_heads", 8),
            "key_dim": key_dim,
            "value_dim": key_dim,
            "scale_attention": False,
            "dropout": options.small("dropout_rate", 0.1),
            "norm": "rms",
            "norm_placement": "pre",
            "norm_epsilon": options.small("layer_norm_epsilon", 1e-6),
            "activation": activation.activation("activation", "relu"),
            "gated": gate == "gated",
            "bias": False,
            "positions": "relative",
            "max_positions": LONGEST,
            "relative_buckets": options.number("relative_attention_num_buckets", 32),
            "relative_max_distance": options.number("relative_attention_max_distance", 128),
            "tied_embeddings": "input" if _has_own_output(tensors) else "all",
            "scale_embeddings": False,
            "scale_output": bool(options.get("scale_decoder_outputs", tied)),
            "vocab_size": options.number("vocab_size", 32128),
            "pad_id": options.identifier("pad_token_id", 0),
            "decoder_start_id": options.identifier("decoder_start_token_id", options.identifier("pad_token_id", 0)),
            "eos_id": options.identifier("eos_token_id", 1),
        },
    }


def _has_own_output(tensors: CheckpointTensors) -> bool:
    """Whether the output has a table of its own; a copy of the shared one does not count."""
    names = "lm_head.weight", "shared.weight"
    if not all(name in tensors.shapes for name in names) or tensors.shapes[names[0]] != tensors.shapes[names[1]]:
        return names[0] in tensors.shapes
    return not torch.equal(tensors.get(names[0]), tensors.get(names[1]))


def table(config: Config, names: Collection[str] = ()) -> WeightMapping:
    """The names."""
    model = config.model
    links = [TensorLink("source_embedding.tokens.weight", "shared.weight")]
    copies = {f"{stack}.embed_tokens.weight": "shared.weight" for stack in ("encoder", "decoder")}
    if model.tied_embeddings == "input":
        links.append(TensorLink("output.weight", "lm_head.weight"))
    else:
        copies["lm_head.weight"] = "shared.weight"
    for stack, num_layers in (("encoder", model.num_encoder_layers), ("decoder", model.num_decoder_layers)):
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        links.append(TensorLink(f"{stack}.relative_bias.weight", bias))
        for number in range(num_layers):
            links += _layer(f"{stack}.layers.{number}", f"{stack}.block.{number}.layer", stack, model.gated)
        links += linear_links(f"{stack}.norm", f"{stack}.final_layer_norm", bias=False)
    unused = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"  # of old conversions
    return WeightMapping(links, copies, left_out=unused)


def _layer(ours: str, theirs: str, stack: str, gated: bool) -> Iterator[TensorLink]:
    looks = [("self_attention", f"{theirs}.0", "SelfAttention")]
    if stack == "decoder":
        looks.append(("cross_attention", f"{theirs}.1", "EncDecAttention"))
    for name, layer, kind in looks:
        parts = [f"{layer}.{kind}.{part}" for part in "qkv"]
        yield from attention_links(f"{ours}.{name}", parts, f"{layer}.{kind}.o", bias=False)
        yield from linear_links(f"{ours}.{name}_residual.norm", f"{layer}.layer_norm", bias=False)
    network = f"{theirs}.{len(looks)}"
    yield from linear_links(
        f"{ours}.feed_forward.w1", f"{network}.DenseReluDense.{'wi_0' if gated else 'wi'}", bias=False
    )
    if gated:
        yield from linear_links(f"{ours}.feed_forward.w3", f"{network}.DenseReluDense.wi_1", bias=False)
    yield from linear_links(f"{ours}.feed_forward.w2", f"{network}.DenseReluDense.wo", bias=False)
    yield from linear_links(f"{ours}.feed_forward_residual.norm", f"{network}.layer_norm", bias=False)


def required(config: Config) -> Settings:
    """Return what T5 requires of the model section; queries, keys and values have one width."""
    model = config.model
    is_one_width = model.head_value_dim == model.head_key_dim
    return {
        "family": "transformer",
        "input": "tokens",
        "norm": "rms",
        "norm_placement": "pre",
        "final_norm": (None, True),
        "embedding_norm": False,
        "positions": "relative",
        "scale_embeddings": False,
        "scale_attention": False,
        "tied_embeddings": ("all", "input"),
        "output_bias": False,
        "bias": False,
        "activation": ("relu", "gelu_tanh") if model.gated else ("relu", "gelu", "silu"),
        "value_dim": model.value_dim if is_one_width else model.head_key_dim,
    }


def write(config: Config) -> Settings:
    """Their settings."""
    model = config.model
    gated = {"relu": "gated-relu", "gelu_tanh": "gated-gelu"}
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "d_model": model.model_dim,
        "d_kv": model.head_key_dim,
        "d_ff": model.feed_forward_dim,
        "num_layers": model.num_encoder_layers,
        "num_decoder_layers": model.num_decoder_layers,
        "num_heads": model.num_heads,
        "relative_attention_num_buckets": model.relative_buckets,
        "relative_attention_max_distance": model.relative_max_distance,
        "feed_forward_proj": gated[model.activation] if model.gated else ACTIVATIONS[model.activation],
        "dropout_rate": model.dropout,
        "layer_norm_epsilon": model.norm_epsilon,
        "tie_word_embeddings": model.scale_output,  # which is how they tell whether the output is scaled
        "vocab_size": model.vocab_size,
        "pad_token_id": model.pad_id,
        "eos_token_id": model.eos_id,
        "decoder_start_token_id": model.decoder_start_id,
        "is_encoder_decoder": True,
    }


FORMAT = ModelFormat("t5", "T5", required, read, table, write)
