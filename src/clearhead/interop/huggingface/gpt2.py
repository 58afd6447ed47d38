"""GPT-2: a pre-norm decoder-only language model with learned positions; its linear layers are stored transposed."""

from collections.abc import Collection, Iterator

from clearhead.config import Config
from clearhead.interop.checkpoint_tensors import CheckpointTensors
from clearhead.interop.huggingface.model_format import ConfigKey, ModelFormat
from clearhead.interop.settings import Settings, SettingsReader, equal_head_widths
from clearhead.interop.weight_mapping import TensorLink, WeightMapping, joint_projection_links, linear_links

PREFIX = "transformer."


def _read_settings(options: SettingsReader, tensors: CheckpointTensors, task: str) -> Settings:
    """Return the settings; prompts have no start token, and the padding id is the first id after the vocabulary."""
    options.require(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    return {
        "data": {"max_tokens": options.positive_int("n_positions", 1024), "document_unit": "paragraph"},
        "model": {
            "feed_forward_dim": options.positive_int("n_inner", 4 * options.positive_int("n_embd", 768)),
            "tied_embeddings": "all" if options.get("tie_word_embeddings", True) else "none",
            "pad_id": options.positive_int("vocab_size", 50257),
        },
        "decoding": {"sampling": {"add_start_token": False}},
    }


def _write_settings(config: Config) -> Settings:
    model = config.model
    return {
        "n_inner": model.feed_forward_dim,
        "embd_pdrop": model.dropout,
        "bos_token_id": model.decoder_start_id,
        "eos_token_id": model.eos_id,
        "tie_word_embeddings": model.tied_embeddings != "none",
    }


def _weight_mapping(config: Config, tensor_names: Collection[str] = ()) -> WeightMapping:
    """Return the weight mapping; a checkpoint saved without the language model head has no prefix."""
    has_prefix = not tensor_names or any(name.startswith(PREFIX) for name in tensor_names)
    prefix = PREFIX if has_prefix else ""
    links = [*_decoder_links(prefix, config.model.num_decoder_layers)]
    copies = {"lm_head.weight": f"{prefix}wte.weight"}
    if config.model.tied_embeddings == "none":
        links.append(TensorLink("output.weight", "lm_head.weight"))
        copies = {}
    return WeightMapping(links, copies, r".*\.attn\.(bias|masked_bias)")


def _decoder_links(prefix: str, num_layers: int) -> Iterator[TensorLink]:
    yield TensorLink("embedding.tokens.weight", f"{prefix}wte.weight")
    yield TensorLink("embedding.positions.weight", f"{prefix}wpe.weight")
    for number in range(num_layers):
        local, external = f"decoder.layers.{number}", f"{prefix}h.{number}"
        joint = f"{external}.attn.c_attn"
        yield from joint_projection_links(f"{local}.self_attention", f"{joint}.weight", f"{joint}.bias", "transposed")
        yield from linear_links(f"{local}.self_attention.output", f"{external}.attn.c_proj", arrangement="transposed")
        yield from linear_links(f"{local}.self_attention_residual.norm", f"{external}.ln_1")
        yield from linear_links(f"{local}.feed_forward.w1", f"{external}.mlp.c_fc", arrangement="transposed")
        yield from linear_links(f"{local}.feed_forward.w2", f"{external}.mlp.c_proj", arrangement="transposed")
        yield from linear_links(f"{local}.feed_forward_residual.norm", f"{external}.ln_2")
    yield from linear_links("decoder.norm", f"{prefix}ln_f")


def _supported_settings(config: Config) -> Settings:
    return {
        "final_norm": (None, True),
        "tied_embeddings": ("all", "target", "none"),
        **equal_head_widths(config.model),
    }


GPT2 = ModelFormat(
    "gpt2",
    "GPT-2",
    architectures={"GPT2LMHeadModel": "lm"},
    constants={
        "family": "decoder",
        "norm": "layer",
        "norm_placement": "pre",
        "embedding_norm": False,
        "positions": "learned",
        "scale_embeddings": False,
        "scale_attention": True,
        "gated": False,
        "bias": True,
    },
    keys={
        "num_decoder_layers": ConfigKey("n_layer", 12),
        "model_dim": ConfigKey("n_embd", 768),
        "num_heads": ConfigKey("n_head", 12),
        "dropout": ConfigKey("resid_pdrop", 0.1, "number"),
        "norm_epsilon": ConfigKey("layer_norm_epsilon", 1e-5, "number"),
        "activation": ConfigKey("activation_function", "gelu_new", "activation"),
        "max_positions": ConfigKey("n_positions", 1024),
        "vocab_size": ConfigKey("vocab_size", 50257),
    },
    read_settings=_read_settings,
    write_settings=_write_settings,
    supported_settings=_supported_settings,
    weight_mapping=_weight_mapping,
    attention_dropout_key="attn_pdrop",
)
