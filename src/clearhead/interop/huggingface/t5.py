"""T5, versions 1 and 1.1: encoder-decoders with relative positions, RMS normalization and no biases."""

from collections.abc import Collection, Iterator

import torch

from clearhead.config import Config
from clearhead.interop.checkpoint_tensors import CheckpointTensors
from clearhead.interop.huggingface.model_format import ACTIVATION_NAMES, ConfigKey, ModelFormat
from clearhead.interop.settings import Settings, SettingsReader
from clearhead.interop.weight_mapping import TensorLink, WeightMapping, attention_links, linear_links

MAX_POSITIONS = 1024
"""Length limit in tokens: T5 has no position table, so it accepts longer texts than those in training."""
_GATED = {"relu": "gated-relu", "gelu_tanh": "gated-gelu"}


def _read_settings(options: SettingsReader, tensors: CheckpointTensors, task: str) -> Settings:
    """Return the settings; version 1.1 has gated layers and an untied output layer whose input is not scaled."""
    gate, _, name = str(options.get("feed_forward_proj", "relu")).rpartition("-")
    if gate not in ("", "gated"):
        options.choice("feed_forward_proj", "relu", {"relu": "relu", "gated-gelu": "gelu_tanh"})
    activation = SettingsReader({"activation": "gelu_new" if (gate, name) == ("gated", "gelu") else name}, options.name)
    key_dim = options.positive_int("d_kv", 64)
    return {
        "data": {"max_tokens": options.positive_int("n_positions", 512), "split": "none"},
        "model": {
            "num_decoder_layers": options.positive_int("num_decoder_layers", options.positive_int("num_layers", 6)),
            "key_dim": key_dim,
            "value_dim": key_dim,
            "activation": activation.activation("activation", "relu"),
            "gated": gate == "gated",
            "max_positions": MAX_POSITIONS,
            "tied_embeddings": "input" if _has_separate_output(tensors) else "all",
            "scale_output": bool(options.get("scale_decoder_outputs", options.get("tie_word_embeddings", True))),
            "decoder_start_id": options.token_id("decoder_start_token_id", options.token_id("pad_token_id", 0)),
        },
    }


def _has_separate_output(tensors: CheckpointTensors) -> bool:
    """Return whether the output layer has weights that differ from the token embedding."""
    output, embedding = "lm_head.weight", "shared.weight"
    if output not in tensors.shapes:
        return False
    if tensors.shapes.get(embedding) != tensors.shapes[output]:
        return True
    return not torch.equal(tensors.get(output), tensors.get(embedding))


def _write_settings(config: Config) -> Settings:
    model = config.model
    return {
        "d_kv": model.head_key_dim,
        "num_decoder_layers": model.num_decoder_layers,
        "feed_forward_proj": _GATED[model.activation] if model.gated else ACTIVATION_NAMES[model.activation],
        "tie_word_embeddings": model.scale_output,  # `transformers` scales the output if this is set
        "decoder_start_token_id": model.decoder_start_id,
        "is_encoder_decoder": True,
    }


def _weight_mapping(config: Config, tensor_names: Collection[str] = ()) -> WeightMapping:
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
            links += _layer_links(f"{stack}.layers.{number}", f"{stack}.block.{number}.layer", stack, model.gated)
        links += linear_links(f"{stack}.norm", f"{stack}.final_layer_norm", bias=False)
    unused = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"  # of old conversions
    return WeightMapping(links, copies, unused=unused)


def _layer_links(local: str, external: str, stack: str, gated: bool) -> Iterator[TensorLink]:
    attentions = [("self_attention", f"{external}.0", "SelfAttention")]
    if stack == "decoder":
        attentions.append(("cross_attention", f"{external}.1", "EncDecAttention"))
    for name, layer, module in attentions:
        projections = [f"{layer}.{module}.{letter}" for letter in "qkv"]
        yield from attention_links(f"{local}.{name}", projections, f"{layer}.{module}.o", bias=False)
        yield from linear_links(f"{local}.{name}_residual.norm", f"{layer}.layer_norm", bias=False)
    layer = f"{external}.{len(attentions)}"
    dense, w1 = f"{layer}.DenseReluDense", "wi_0" if gated else "wi"
    yield from linear_links(f"{local}.feed_forward.w1", f"{dense}.{w1}", bias=False)
    if gated:
        yield from linear_links(f"{local}.feed_forward.w3", f"{dense}.wi_1", bias=False)
    yield from linear_links(f"{local}.feed_forward.w2", f"{dense}.wo", bias=False)
    yield from linear_links(f"{local}.feed_forward_residual.norm", f"{layer}.layer_norm", bias=False)


def _supported_settings(config: Config) -> Settings:
    """Return the supported settings; queries, keys and values have the same width."""
    model = config.model
    has_one_width = model.head_value_dim == model.head_key_dim
    return {
        "final_norm": (None, True),
        "tied_embeddings": ("all", "input"),
        "activation": tuple(_GATED) if model.gated else ("relu", "gelu", "silu"),
        "value_dim": model.value_dim if has_one_width else model.head_key_dim,
    }


T5 = ModelFormat(
    "t5",
    "T5",
    architectures={"T5ForConditionalGeneration": "translate"},
    constants={
        "family": "transformer",
        "input": "tokens",
        "norm": "rms",
        "norm_placement": "pre",
        "embedding_norm": False,
        "positions": "relative",
        "scale_embeddings": False,
        "scale_attention": False,
        "output_bias": False,
        "bias": False,
    },
    keys={
        "num_encoder_layers": ConfigKey("num_layers", 6),
        "model_dim": ConfigKey("d_model", 512),
        "feed_forward_dim": ConfigKey("d_ff", 2048),
        "num_heads": ConfigKey("num_heads", 8),
        "dropout": ConfigKey("dropout_rate", 0.1, "number"),
        "norm_epsilon": ConfigKey("layer_norm_epsilon", 1e-6, "number"),
        "relative_buckets": ConfigKey("relative_attention_num_buckets", 32),
        "relative_max_distance": ConfigKey("relative_attention_max_distance", 128),
        "vocab_size": ConfigKey("vocab_size", 32128),
        "pad_id": ConfigKey("pad_token_id", 0, "token_id"),
        "eos_id": ConfigKey("eos_token_id", 1, "token_id"),
    },
    read_settings=_read_settings,
    write_settings=_write_settings,
    supported_settings=_supported_settings,
    weight_mapping=_weight_mapping,
)
