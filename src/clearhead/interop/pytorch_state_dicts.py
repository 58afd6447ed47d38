"""State dicts of torch's own `nn.Transformer`, inside a module with embeddings, and of the Annotated Transformer.

A state dict has no settings: sizes are read off the shapes, the rest is given by the user (`--set model.num_heads=8`).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from clearhead import config as configs
from clearhead.config import Config, ModelConfig
from clearhead.data.tokenizer.imported import ImportedTokenizer
from clearhead.errors import InteropError
from clearhead.interop.checkpoint_tensors import CheckpointTensors
from clearhead.interop.huggingface.model_format import ImportedModel, Settings
from clearhead.interop.subword_tokenizers import build_tokenizer, read_lines, words_pipeline
from clearhead.interop.weight_mapping import (
    TensorLink,
    WeightMapping,
    attention_links,
    check_parameter_count,
    import_weights,
    joint_projection_links,
    linear_links,
)
from clearhead.model.positions import sinusoids

TORCH_MARK = "encoder.layers.0.self_attn.in_proj_weight"
ANNOTATED_MARK = "encoder.layers.0.self_attn.linears.0.weight"
# Names of the tables around nn.Transformer, as torch's tutorial and others after it have them.
SOURCE = r"(src|source|encoder|enc)_?(tok|token|word)?_?(emb|embed|embedding|embeddings)(\.(embedding|lut))?\.weight"
TARGET = SOURCE.replace("src|source|encoder|enc", "tgt|trg|target|decoder|dec")
OUTPUT = r"(generator|fc_out|out|output|linear|proj|projection|lm_head)(\.proj)?\.weight"
POSITIONS = r".*(pos_embedding|\.pe|^pe)"
SPECIAL_TOKENS = {
    "pad": ("<pad>", "<blank>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "bos": ("<bos>", "<s>", "<sos>", "[CLS]"),
    "eos": ("<eos>", "</s>", "[SEP]"),
}


def is_state_dict(names: Sequence[str]) -> bool:
    """Whether these are names of one of the two layouts."""
    return any(name.endswith(TORCH_MARK) or name == ANNOTATED_MARK for name in names)


def read_state_dict(
    tensors: CheckpointTensors, path: Path, dictionaries: Sequence[Path], settings: Settings
) -> ImportedModel:
    """The model of a state dict."""
    names = list(tensors.shapes)
    annotated = ANNOTATED_MARK in names
    if "num_heads" not in settings.get("model", {}):
        raise InteropError(f"{path}: a state dict does not tell the number of heads; give --set model.num_heads=8")
    prefix = "" if annotated else next(name for name in names if name.endswith(TORCH_MARK)).removesuffix(TORCH_MARK)
    around = ANNOTATED_OUTER_TENSORS if annotated else _find_outer_tensors(names, prefix, path)
    own = _settings(tensors, prefix, around, annotated)
    config = configs.parse(configs.merge(own, settings))
    check_parameter_count(config.model, tensors)
    _check_positions(tensors, config.model)
    tokenizer = _tokenizer(path, dictionaries, config.model)
    ids = {"pad_id": tokenizer.pad_id, "decoder_start_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id}
    sizes = {"kind": "imported", "vocab_size": tokenizer.vocab_size}
    config = configs.override(config, {"model": ids, "tokenizer": sizes})
    layer = _annotated_layer if annotated else _torch_layer
    applied = import_weights(weight_mapping(config, prefix, around, layer), tensors, config.model)
    name = "Annotated Transformer" if annotated else "torch nn.Transformer"
    return ImportedModel(config, applied.weights, tokenizer, applied.left_out, name, [])


ANNOTATED_OUTER_TENSORS = {
    "source": "src_embed.0.lut.weight",
    "target": "tgt_embed.0.lut.weight",
    "output": "generator.proj.weight",
}


def _find_outer_tensors(names: Sequence[str], prefix: str, path: Path) -> dict[str, str]:
    """The embeddings and the output around nn.Transformer."""
    outside = [name for name in names if not re.match(re.escape(prefix) + r"(en|de)coder\.(layers|norm)\.", name)]
    found = {}
    for role, pattern in (("source", SOURCE), ("target", TARGET), ("output", OUTPUT)):
        fitting = [name for name in outside if re.fullmatch(pattern, name)]
        if len(fitting) != 1:
            there = ", ".join(outside) or "none"
            raise InteropError(f"{path}: expected one tensor for the {role} table around nn.Transformer, found {there}")
        found[role] = fitting[0]
    return found


def _settings(tensors: CheckpointTensors, prefix: str, around: Mapping[str, str], annotated: bool) -> Settings:
    shapes = tensors.shapes
    layers = [
        len({name.split(".")[0] for name in _names_after(shapes, f"{prefix}{stack}.layers.")})
        for stack in ("encoder", "decoder")
    ]
    inner = "encoder.layers.0.feed_forward.w_1.weight" if annotated else f"{prefix}encoder.layers.0.linear1.weight"
    needed = [inner, *around.values()]
    if any(len(shapes.get(name, ())) != 2 for name in needed):
        raise InteropError(f"the state dict must have the matrices {', '.join(needed)}")
    sizes = [shapes[around[role]][0] for role in ("source", "target")]
    bias = around["output"].replace(".weight", ".bias")
    final_norm = f"{prefix}encoder.norm.{'a_2' if annotated else 'weight'}" in shapes
    kind: Settings = {"norm_placement": "post", "norm": "layer", "norm_epsilon": 1e-5}
    if annotated:
        kind = {"norm_placement": "pre", "norm": "sample", "norm_epsilon": 1e-6}
    return {
        "task": "translate",
        "model": {
            **kind,
            "num_encoder_layers": layers[0],
            "num_decoder_layers": layers[1],
            "model_dim": shapes[around["source"]][1],
            "feed_forward_dim": shapes[inner][0],
            "final_norm": final_norm,
            "tied_embeddings": "none",
            "output_bias": bias in shapes,
            "vocab_size": sizes[1],
            "source_vocab_size": sizes[0],
            "max_positions": _num_positions(tensors) or 1024,
        },
    }


def _names_after(shapes: Mapping[str, Any], start: str) -> list[str]:
    return [name.removeprefix(start) for name in shapes if name.startswith(start)]


def _num_positions(tensors: CheckpointTensors) -> int:
    """How many places the saved table has, if it is saved."""
    found = [max(shape[:-1], default=0) for name, shape in tensors.shapes.items() if re.fullmatch(POSITIONS, name)]
    return min(found, default=0)


def _check_positions(tensors: CheckpointTensors, model: ModelConfig) -> None:
    """Saved positions must be the paper's sines and cosines."""
    for name, shape in tensors.shapes.items():
        if re.fullmatch(POSITIONS, name):
            fits = bool(shape) and shape[-1] == model.model_dim
            table_LD = tensors.get(name).float().reshape(-1, model.model_dim) if fits else torch.zeros(1, 1)
            if not fits or not torch.allclose(table_LD, sinusoids(*table_LD.shape), atol=1e-3):
                raise InteropError(
                    f"positions in {name} are not the paper's sines and cosines; others are not supported"
                )


LayerLinks = Callable[[str, str, str], Iterator[TensorLink]]


def weight_mapping(config: Config, prefix: str, around: Mapping[str, str], layer: LayerLinks) -> WeightMapping:
    """The names of either layout, which differ in their layers and norms."""
    model = config.model
    links = [
        TensorLink("source_embedding.tokens.weight", around["source"]),
        TensorLink("target_embedding.tokens.weight", around["target"]),
        TensorLink("output.weight", around["output"]),
    ]
    if model.output_bias:
        links.append(TensorLink("output.bias", around["output"].replace(".weight", ".bias")))
    for stack, count in (("encoder", model.num_encoder_layers), ("decoder", model.num_decoder_layers)):
        for number in range(count):
            links += layer(f"{stack}.layers.{number}", f"{prefix}{stack}.layers.{number}", stack)
        if model.has_final_norm:
            links += _norm(f"{stack}.norm", f"{prefix}{stack}.norm", layer is _annotated_layer)
    return WeightMapping(links, ignored=POSITIONS)


def _norm(ours: str, theirs: str, annotated: bool) -> Iterator[TensorLink]:
    names = ("a_2", "b_2") if annotated else ("weight", "bias")
    yield TensorLink(f"{ours}.weight", f"{theirs}.{names[0]}")
    yield TensorLink(f"{ours}.bias", f"{theirs}.{names[1]}")


def _torch_layer(ours: str, theirs: str, stack: str) -> Iterator[TensorLink]:
    looks = [("self_attention", "self_attn")] + [("cross_attention", "multihead_attn")] * (stack == "decoder")
    for number, (name, look) in enumerate(looks, 1):
        joint = f"{theirs}.{look}.in_proj"
        yield from joint_projection_links(f"{ours}.{name}", f"{joint}_weight", f"{joint}_bias")
        yield from linear_links(f"{ours}.{name}.output", f"{theirs}.{look}.out_proj")
        yield from _norm(f"{ours}.{name}_residual.norm", f"{theirs}.norm{number}", annotated=False)
    yield from linear_links(f"{ours}.feed_forward.w1", f"{theirs}.linear1")
    yield from linear_links(f"{ours}.feed_forward.w2", f"{theirs}.linear2")
    yield from _norm(f"{ours}.feed_forward_residual.norm", f"{theirs}.norm{len(looks) + 1}", annotated=False)


def _annotated_layer(ours: str, theirs: str, stack: str) -> Iterator[TensorLink]:
    looks = [("self_attention", "self_attn")] + [("cross_attention", "src_attn")] * (stack == "decoder")
    for number, (name, look) in enumerate(looks):
        parts = [f"{theirs}.{look}.linears.{part}" for part in range(4)]
        yield from attention_links(f"{ours}.{name}", parts[:3], parts[3])
        yield from _norm(f"{ours}.{name}_residual.norm", f"{theirs}.sublayer.{number}.norm", annotated=True)
    yield from linear_links(f"{ours}.feed_forward.w1", f"{theirs}.feed_forward.w_1")
    yield from linear_links(f"{ours}.feed_forward.w2", f"{theirs}.feed_forward.w_2")
    yield from _norm(f"{ours}.feed_forward_residual.norm", f"{theirs}.sublayer.{len(looks)}.norm", annotated=True)


def _tokenizer(path: Path, dictionaries: Sequence[Path], model: ModelConfig) -> ImportedTokenizer:
    """Words between spaces, from lists of one token a line. Sources begin with the start token in both layouts."""
    if not dictionaries:
        raise InteropError(f"{path} has no vocabulary; give --dict SOURCE --dict TARGET, one token a line in order")
    sides: list[ImportedTokenizer] = []
    for file, size in ((dictionaries[0], model.read_vocab_size), (dictionaries[-1], model.vocab_size)):
        lines = read_lines(file)
        pieces = lines[:-1] if lines and not lines[-1] else lines
        ids = {piece: index for index, piece in reversed([*enumerate(pieces)])}
        roles = {role: next((ids[name] for name in names if name in ids), -1) for role, names in SPECIAL_TOKENS.items()}
        missing = [" or ".join(SPECIAL_TOKENS[role]) for role, index in roles.items() if index < 0]
        if missing or len(pieces) != size:
            raise InteropError(
                f"{file}: expected {size:,} tokens, one a line, with {'; '.join(missing) or 'all special ones'}, found "
                f"{len(pieces):,}"
            )
        pipeline, cut = words_pipeline(pieces)
        sides.append(build_tokenizer(pipeline, cut, ids, "joiner", roles, size, [roles["bos"]] if not sides else []))
    if any(getattr(sides[0], name) != getattr(sides[1], name) for name in ("pad_id", "bos_id", "eos_id")):
        raise InteropError(f"{dictionaries[0]} and {dictionaries[-1]} must have the special tokens at the same places")
    return ImportedTokenizer(sides[0].pipeline, sides[0].vocabulary, target=sides[1])
