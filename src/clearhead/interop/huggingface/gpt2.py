"""GPT-2: a left-to-right language model, pre-norm, with learned positions; its linear layers are stored transposed."""

from collections.abc import Collection, Iterator

from clearhead.config import Config
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
from clearhead.interop.weight_mapping import TensorLink, WeightMapping, joint_projection_links, linear_links

PREFIX = "transformer."


def read(options: SettingsReader, tensors: CheckpointTensors) -> Settings:
    """Our settings. Prompts are read as they are, without a start token before them."""
    architecture(options, {"GPT2LMHeadModel": "lm"})
    options.only(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    width, context = options.number("n_embd", 768), options.number("n_positions", 1024)
    vocab_size = options.number("vocab_size", 50257)
    tied = bool(options.get("tie_word_embeddings", True))
    return {
        "task": "lm",
        "data": {"max_tokens": context, "document_unit": "paragraph"},
        "model": {
            "family": "decoder",
            "num_decoder_layers": options.number("n_layer", 12),
            "model_dim": width,
            "feed_forward_dim": options.number("n_inner", 4 * width),
            "num_heads": options.number("n_head", 12),
            "dropout": options.small("resid_pdrop", 0.1),
            "norm_placement": "pre",
            "norm_epsilon": options.small("layer_norm_epsilon", 1e-5),
            "activation": options.activation("activation_function", "gelu_new"),
            "positions": "learned",
            "max_positions": context,
            "scale_embeddings": False,
            "tied_embeddings": "all" if tied else "none",
            "vocab_size": vocab_size,
            "pad_id": vocab_size,
        },
        "decoding": {"sampling": {"add_start_token": False}},
    }


def table(config: Config, names: Collection[str] = ()) -> WeightMapping:
    """The names; those of a body alone come without a prefix."""
    bare = bool(names) and not any(name.startswith(PREFIX) for name in names)
    prefix = "" if bare else PREFIX
    links = [*_body(prefix, config.model.num_decoder_layers)]
    copies = {"lm_head.weight": f"{prefix}wte.weight"}
    if config.model.tied_embeddings == "none":
        links.append(TensorLink("output.weight", "lm_head.weight"))
        copies = {}
    return WeightMapping(links, copies, r".*\.attn\.(bias|masked_bias)")


def _body(prefix: str, num_layers: int) -> Iterator[TensorLink]:
    yield TensorLink("embedding.tokens.weight", f"{prefix}wte.weight")
    yield TensorLink("embedding.positions.weight", f"{prefix}wpe.weight")
    for number in range(num_layers):
        ours, theirs = f"decoder.layers.{number}", f"{prefix}h.{number}"
        joint = f"{theirs}.attn.c_attn"
        yield from joint_projection_links(f"{ours}.self_attention", f"{joint}.weight", f"{joint}.bias", "transposed")
        yield from linear_links(f"{ours}.self_attention.output", f"{theirs}.attn.c_proj", arrangement="transposed")
        yield from linear_links(f"{ours}.self_attention_residual.norm", f"{theirs}.ln_1")
        yield from linear_links(f"{ours}.feed_forward.w1", f"{theirs}.mlp.c_fc", arrangement="transposed")
        yield from linear_links(f"{ours}.feed_forward.w2", f"{theirs}.mlp.c_proj", arrangement="transposed")
        yield from linear_links(f"{ours}.feed_forward_residual.norm", f"{theirs}.ln_2")
    yield from linear_links("decoder.norm", f"{prefix}ln_f")


def required(config: Config) -> Settings:
    """Return what GPT-2 requires of the model section."""
    return {
        "family": "decoder",
        "norm": "layer",
        "norm_placement": "pre",
        "final_norm": (None, True),
        "embedding_norm": False,
        "positions": "learned",
        "scale_embeddings": False,
        "scale_attention": True,
        "tied_embeddings": ("all", "target", "none"),
        "gated": False,
        "bias": True,
        **equal_head_widths(config.model),
    }


def write(config: Config) -> Settings:
    """Their settings."""
    model = config.model
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": model.model_dim,
        "n_layer": model.num_decoder_layers,
        "n_head": model.num_heads,
        "n_inner": model.feed_forward_dim,
        "n_positions": model.max_positions,
        "activation_function": ACTIVATIONS[model.activation],
        "resid_pdrop": model.dropout,
        "embd_pdrop": model.dropout,
        **attention_dropout(model, "attn_pdrop"),
        "layer_norm_epsilon": model.norm_epsilon,
        "vocab_size": model.vocab_size,
        "bos_token_id": model.decoder_start_id,
        "eos_token_id": model.eos_id,
        "tie_word_embeddings": model.tied_embeddings != "none",
    }


FORMAT = ModelFormat("gpt2", "GPT-2", required, read, table, write)
