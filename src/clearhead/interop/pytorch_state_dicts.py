"""Import of state dicts: `nn.Transformer` in a module with embeddings and output layer, and the Annotated Transformer.

A state dict contains no settings: sizes are inferred from the shapes of the tensors, the user sets the rest
(`--set model.num_heads=8`).

L positions, D model width
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from clearhead import config as configs
from clearhead.config import Config, ModelConfig
from clearhead.data.tokenizer.imported import ImportedTokenizer
from clearhead.errors import InteropError
from clearhead.interop.checkpoint_tensors import CheckpointTensors, Shape
from clearhead.interop.settings import Settings
from clearhead.interop.subword_tokenizers import build_tokenizer, read_lines, words_pipeline
from clearhead.interop.weight_mapping import (
    ImportedModel,
    TensorLink,
    WeightMapping,
    attention_links,
    check_parameter_count,
    import_weights,
    joint_projection_links,
    linear_links,
)
from clearhead.model.positions import sinusoids

TORCH_NAME = "encoder.layers.0.self_attn.in_proj_weight"
"""Tensor that identifies `nn.Transformer`; a prefix may precede it."""
ANNOTATED_NAME = "encoder.layers.0.self_attn.linears.0.weight"
"""Tensor that identifies the Annotated Transformer."""
# Names of the embeddings and the output layer around nn.Transformer, in torch's tutorial and similar code.
SOURCE = r"(src|source|encoder|enc)_?(tok|token|word)?_?(emb|embed|embedding|embeddings)(\.(embedding|lut))?\.weight"
TARGET = SOURCE.replace("src|source|encoder|enc", "tgt|trg|target|decoder|dec")
OUTPUT = r"(generator|fc_out|out|output|linear|proj|projection|lm_head)(\.proj)?\.weight"
POSITIONS = r".*(pos_embedding|\.pe|^pe)"
ANNOTATED_OUTER_TENSORS = {
    "source": "src_embed.0.lut.weight", "target": "tgt_embed.0.lut.weight", "output": "generator.proj.weight",
}  # fmt: skip
SPECIAL_TOKENS = {
    "pad": ("<pad>", "<blank>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "bos": ("<bos>", "<s>", "<sos>", "[CLS]"),
    "eos": ("<eos>", "</s>", "[SEP]"),
}
"""Names of the special tokens in vocabulary files; the first that is present is used."""

LayerLinks = Callable[[str, str, str], Iterator[TensorLink]]


def is_state_dict(names: Sequence[str]) -> bool:
    """Return whether these are the tensor names of `nn.Transformer` or of the Annotated Transformer."""
    return any(name.endswith(TORCH_NAME) or name == ANNOTATED_NAME for name in names)


def read_state_dict(
    tensors: CheckpointTensors, path: Path, dictionaries: Sequence[Path], settings: Settings
) -> ImportedModel:
    """Return the model of a state dict; the user's `settings` override those inferred from the tensors."""
    names = list(tensors.shapes)
    is_annotated = ANNOTATED_NAME in names
    if "num_heads" not in settings.get("model", {}):
        raise InteropError(f"{path}: a state dict does not contain the number of heads; add --set model.num_heads=8")
    prefix = ""
    if not is_annotated:
        prefix = next(name for name in names if name.endswith(TORCH_NAME)).removesuffix(TORCH_NAME)
    outer = ANNOTATED_OUTER_TENSORS if is_annotated else _find_outer_tensors(names, prefix, path)
    inferred = _infer_settings(tensors, prefix, outer, is_annotated)
    config = configs.parse(configs.merge(inferred, settings))
    check_parameter_count(config.model, tensors)
    _check_positions(tensors, config.model)
    tokenizer = _tokenizer(path, dictionaries, config.model)
    special_ids = {"pad_id": tokenizer.pad_id, "decoder_start_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id}
    tokenizer_settings = {"kind": "imported", "vocab_size": tokenizer.vocab_size}
    config = configs.override(config, {"model": special_ids, "tokenizer": tokenizer_settings})
    layer_links = _annotated_layer_links if is_annotated else _torch_layer_links
    mapped = import_weights(weight_mapping(config, prefix, outer, layer_links), tensors, config.model)
    title = "Annotated Transformer" if is_annotated else "torch nn.Transformer"
    return ImportedModel(config, mapped.weights, tokenizer, mapped.unused_tensors, title, [])


def _find_outer_tensors(names: Sequence[str], prefix: str, path: Path) -> dict[str, str]:
    """Return the names of the embeddings and the output layer outside nn.Transformer, or raise InteropError."""
    outside = [name for name in names if not re.match(re.escape(prefix) + r"(en|de)coder\.(layers|norm)\.", name)]
    outer = {}
    for role, pattern in (("source", SOURCE), ("target", TARGET), ("output", OUTPUT)):
        matches = [name for name in outside if re.fullmatch(pattern, name)]
        if len(matches) != 1:
            raise InteropError(
                f"{path}: expected one tensor outside nn.Transformer whose name identifies the "
                f"{'output layer' if role == 'output' else f'{role} embedding'}, found {len(matches)}; the names are "
                f"{', '.join(outside) or 'none'}"
            )
        outer[role] = matches[0]
    return outer


def _infer_settings(tensors: CheckpointTensors, prefix: str, outer: Mapping[str, str], is_annotated: bool) -> Settings:
    """Return the settings that the names and shapes imply, or raise InteropError."""
    shapes = tensors.shapes
    w1 = "encoder.layers.0.feed_forward.w_1.weight" if is_annotated else f"{prefix}encoder.layers.0.linear1.weight"
    matrices = [w1, *outer.values()]
    if any(len(shapes.get(name, ())) != 2 for name in matrices):
        raise InteropError(f"the state dict must contain the matrices {', '.join(matrices)}")
    norm: Settings = {"norm_placement": "post", "norm": "layer", "norm_epsilon": 1e-5}
    if is_annotated:
        norm = {"norm_placement": "pre", "norm": "sample", "norm_epsilon": 1e-6}
    return {
        "task": "translate",
        "model": {
            **norm,
            "num_encoder_layers": _num_layers(shapes, f"{prefix}encoder.layers."),
            "num_decoder_layers": _num_layers(shapes, f"{prefix}decoder.layers."),
            "model_dim": shapes[outer["source"]][1],
            "feed_forward_dim": shapes[w1][0],
            "final_norm": f"{prefix}encoder.norm.{'a_2' if is_annotated else 'weight'}" in shapes,
            "tied_embeddings": "none",
            "output_bias": outer["output"].replace(".weight", ".bias") in shapes,
            "vocab_size": shapes[outer["target"]][0],
            "source_vocab_size": shapes[outer["source"]][0],
            "max_positions": _num_positions(tensors) or 1024,
        },
    }


def _num_layers(shapes: Mapping[str, Shape], prefix: str) -> int:
    """Return the number of layers whose tensor names have a prefix."""
    return len({name.removeprefix(prefix).split(".")[0] for name in shapes if name.startswith(prefix)})


def _num_positions(tensors: CheckpointTensors) -> int:
    """Return the number of positions in the saved table, or 0 if it is not saved."""
    shapes = [shape for name, shape in tensors.shapes.items() if re.fullmatch(POSITIONS, name)]
    return min((max(shape[:-1], default=0) for shape in shapes), default=0)


def _check_positions(tensors: CheckpointTensors, model: ModelConfig) -> None:
    """Raise InteropError if saved positions are not the sinusoids of Vaswani et al. (2017)."""
    for name, shape in tensors.shapes.items():
        if re.fullmatch(POSITIONS, name):
            has_width = bool(shape) and shape[-1] == model.model_dim
            table_LD = tensors.get(name).float().reshape(-1, model.model_dim) if has_width else torch.zeros(1, 1)
            if not has_width or not torch.allclose(table_LD, sinusoids(*table_LD.shape), atol=1e-3):
                raise InteropError(
                    f"the positions in {name} are not supported; expected the sinusoids of Vaswani et al. (2017)"
                )


def weight_mapping(config: Config, prefix: str, outer: Mapping[str, str], layer_links: LayerLinks) -> WeightMapping:
    """Return the weight mapping; the two layouts differ in `layer_links` and in the names of normalizations."""
    model = config.model
    links = [
        TensorLink("source_embedding.tokens.weight", outer["source"]),
        TensorLink("target_embedding.tokens.weight", outer["target"]),
        TensorLink("output.weight", outer["output"]),
    ]
    if model.output_bias:
        links.append(TensorLink("output.bias", outer["output"].replace(".weight", ".bias")))
    for stack, num_layers in (("encoder", model.num_encoder_layers), ("decoder", model.num_decoder_layers)):
        for number in range(num_layers):
            links += layer_links(f"{stack}.layers.{number}", f"{prefix}{stack}.layers.{number}", stack)
        if model.has_final_norm:
            links += _norm_links(f"{stack}.norm", f"{prefix}{stack}.norm", layer_links is _annotated_layer_links)
    return WeightMapping(links, ignored=POSITIONS)


def _norm_links(local: str, external: str, is_annotated: bool) -> Iterator[TensorLink]:
    weight, bias = ("a_2", "b_2") if is_annotated else ("weight", "bias")
    yield TensorLink(f"{local}.weight", f"{external}.{weight}")
    yield TensorLink(f"{local}.bias", f"{external}.{bias}")


def _torch_layer_links(local: str, external: str, stack: str) -> Iterator[TensorLink]:
    attentions = [("self_attention", "self_attn")] + [("cross_attention", "multihead_attn")] * (stack == "decoder")
    for number, (name, module) in enumerate(attentions, 1):
        joint = f"{external}.{module}.in_proj"
        yield from joint_projection_links(f"{local}.{name}", f"{joint}_weight", f"{joint}_bias")
        yield from linear_links(f"{local}.{name}.output", f"{external}.{module}.out_proj")
        yield from _norm_links(f"{local}.{name}_residual.norm", f"{external}.norm{number}", is_annotated=False)
    yield from linear_links(f"{local}.feed_forward.w1", f"{external}.linear1")
    yield from linear_links(f"{local}.feed_forward.w2", f"{external}.linear2")
    norm = f"{external}.norm{len(attentions) + 1}"
    yield from _norm_links(f"{local}.feed_forward_residual.norm", norm, is_annotated=False)


def _annotated_layer_links(local: str, external: str, stack: str) -> Iterator[TensorLink]:
    attentions = [("self_attention", "self_attn")] + [("cross_attention", "src_attn")] * (stack == "decoder")
    for number, (name, module) in enumerate(attentions):
        layers = [f"{external}.{module}.linears.{index}" for index in range(4)]
        yield from attention_links(f"{local}.{name}", layers[:3], layers[3])
        yield from _norm_links(f"{local}.{name}_residual.norm", f"{external}.sublayer.{number}.norm", is_annotated=True)
    yield from linear_links(f"{local}.feed_forward.w1", f"{external}.feed_forward.w_1")
    yield from linear_links(f"{local}.feed_forward.w2", f"{external}.feed_forward.w_2")
    norm = f"{external}.sublayer.{len(attentions)}.norm"
    yield from _norm_links(f"{local}.feed_forward_residual.norm", norm, is_annotated=True)


def _tokenizer(path: Path, dictionaries: Sequence[Path], model: ModelConfig) -> ImportedTokenizer:
    """Return a tokenizer that splits at spaces, with the vocabularies in files of one token per line.

    Sources begin with the start token in both layouts. Raise InteropError for missing or unsuitable files.
    """
    if not dictionaries:
        raise InteropError(f"{path} has no vocabulary; add --dict SOURCE --dict TARGET, files with one token per line")
    sides: list[ImportedTokenizer] = []
    for file, size in ((dictionaries[0], model.input_vocab_size), (dictionaries[-1], model.vocab_size)):
        lines = read_lines(file)
        words = lines[:-1] if lines and not lines[-1] else lines
        ids = {word: index for index, word in reversed([*enumerate(words)])}
        roles = {role: next((ids[name] for name in names if name in ids), -1) for role, names in SPECIAL_TOKENS.items()}
        missing = [" or ".join(SPECIAL_TOKENS[role]) for role, index in roles.items() if index < 0]
        if missing or len(words) != size:
            lacking = f"without {'; '.join(missing)}" if missing else "with all special tokens"
            raise InteropError(
                f"{file}: expected {size:,} tokens, one per line, including the special tokens; found {len(words):,} "
                f"tokens, {lacking}"
            )
        pipeline, tokens = words_pipeline(words)
        prefix = [roles["bos"]] if not sides else []
        sides.append(build_tokenizer(pipeline, tokens, ids, "joiner", roles, size, prefix))
    if any(getattr(sides[0], name) != getattr(sides[1], name) for name in ("pad_id", "bos_id", "eos_id")):
        raise InteropError(f"{dictionaries[0]} and {dictionaries[-1]} must have the special tokens in the same lines")
    return ImportedTokenizer(sides[0].pipeline, sides[0].vocabulary, target=sides[1])
