"""fairseq's Transformer checkpoints: settings and tensors in one .pt file, dictionaries and BPE codes beside it."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead import config as configs
from clearhead.config import Config, ModelConfig
from clearhead.data.segmentation import language_pair
from clearhead.data.tokenizer.imported import ImportedTokenizer
from clearhead.errors import InteropError
from clearhead.interop.checkpoint_tensors import CheckpointTensors, InMemoryTensors
from clearhead.interop.huggingface.marian import layer_links
from clearhead.interop.huggingface.model_format import ImportedModel, Settings
from clearhead.interop.settings import SettingsReader
from clearhead.interop.subword_tokenizers import (
    SentencePieceModel,
    bpe_pipeline,
    build_tokenizer,
    read_lines,
    words_pipeline,
)
from clearhead.interop.weight_mapping import (
    TensorLink,
    WeightMapping,
    check_parameter_count,
    import_weights,
    linear_links,
)

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3 of every dictionary
ROLES = {"bos": 0, "pad": 1, "eos": 2, "unk": 3}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_fast": "gelu_tanh", "gelu_accurate": "gelu_tanh", "swish": "silu"}
CODES = ("*code*", "*.bpe", "sentencepiece*.model")
OUTPUTS = ("decoder.output_projection.weight", "decoder.embed_out")  # today's name, and the old one


def is_checkpoint(found: Any) -> bool:
    """Whether this was written by fairseq."""
    return (
        isinstance(found, dict) and isinstance(found.get("model"), dict) and bool(found.get("args") or found.get("cfg"))
    )


def read_checkpoint(
    found: Mapping[str, Any], path: Path, dictionaries: Sequence[Path], codes: Path | None, settings: Settings
) -> ImportedModel:
    """The model of a loaded checkpoint."""
    tensors = InMemoryTensors({name: tensor for name, tensor in found["model"].items() if isinstance(tensor, Tensor)})
    cfg = _to_dict(found.get("cfg"))
    options = SettingsReader(_to_dict(found.get("args") or cfg.get("model")), str(path))
    generation = SettingsReader(_to_dict(cfg.get("generation")), str(path))
    notes: list[str] = []
    own = {**_model_settings(options, tensors), "decoding": _decoding(generation, notes)}
    config = configs.parse(configs.merge(own, settings))
    check_parameter_count(config.model, tensors)
    tokenizer = _tokenizer(path, dictionaries, codes, config.model, options)
    sizes = {"kind": "imported", "vocab_size": tokenizer.vocab_size}
    config = configs.override(config, {"tokenizer": sizes})
    applied = import_weights(weight_mapping(config, tensors), tensors, config.model)
    return ImportedModel(config, applied.weights, tokenizer, applied.left_out, "fairseq transformer", notes)


def _to_dict(settings: Any) -> dict[str, Any]:
    """Settings as a dictionary; none where there are none."""
    if isinstance(settings, Namespace):
        return dict(vars(settings))
    return dict(settings) if isinstance(settings, Mapping) else {}


def _model_settings(options: SettingsReader, tensors: CheckpointTensors) -> Settings:
    arch = str(options.get("arch", options.get("_name", "")))
    if not arch.startswith("transformer") or "lm" in arch.split("_"):
        raise InteropError(
            f"arch {arch} is not supported, only transformer models of the task translation; {options.name}"
        )
    options.only(
        adaptive_softmax_cutoff=None, no_cross_attention=False, cross_self_attention=False, adaptive_input=False,
        encoder_learned_pos=False, decoder_learned_pos=False, no_decoder_final_norm=False, encoder_layers_to_keep=None,
        decoder_layers_to_keep=None,
    )  # fmt: skip
    for name in ("embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before"):
        options.only(**{f"decoder_{name}": options.get(f"encoder_{name}")})
    width = options.number("encoder_embed_dim", 512)
    for name in ("decoder_input_dim", "decoder_output_dim"):
        options.only(**{name: width})
    sizes = [_vocab_size(tensors, f"{stack}.embed_tokens.weight") for stack in ("encoder", "decoder")]
    is_shared, is_tied = (
        bool(options.get("share_all_embeddings")),
        bool(options.get("share_decoder_input_output_embed")),
    )
    places = min(options.number(f"max_{side}_positions", 1024) for side in ("source", "target"))
    languages = language_pair(options.get("source_lang", ""), options.get("target_lang", ""))
    return {
        "task": "translate",
        "data": {"max_tokens": places, "split": "sentences", "languages": languages},
        "model": {
            "num_encoder_layers": options.number("encoder_layers", 6),
            "num_decoder_layers": options.number("decoder_layers", 6),
            "model_dim": width,
            "feed_forward_dim": options.number("encoder_ffn_embed_dim", 2048),
            "num_heads": options.number("encoder_attention_heads", 8),
            "dropout": options.small("dropout", 0.1),
            "norm_placement": "pre" if options.get("encoder_normalize_before", False) else "post",
            "activation": options.choice("activation_fn", "relu", ACTIVATIONS, "activation"),
            "positions": "none" if options.get("no_token_positional_embeddings", False) else "sinusoidal",
            "sinusoidal_layout": "fairseq",
            "max_positions": places,
            "tied_embeddings": "all" if is_shared else "target" if is_tied else "none",
            "scale_embeddings": not options.get("no_scale_embedding", False),
            "embedding_norm": bool(options.get("layernorm_embedding", False)),
            "vocab_size": sizes[1],
            "source_vocab_size": 0 if is_shared else sizes[0],
            "pad_id": ROLES["pad"],
            "decoder_start_id": ROLES["eos"],
            "eos_id": ROLES["eos"],
        },
    }


def _vocab_size(tensors: CheckpointTensors, name: str) -> int:
    if len(tensors.shapes.get(name, ())) != 2:
        raise InteropError(f"the checkpoint has no matrix {name}; expected an encoder-decoder Transformer of fairseq")
    return tensors.shapes[name][0]


def _decoding(options: SettingsReader, notes: list[str]) -> Settings:
    """Their generator's settings, or its defaults; their limit does not count the end, ours does."""
    growth, longest = options.small("max_len_a", 0.0), int(options.get("max_len_b", 200)) + 1
    if growth not in (0.0, 1.0):
        notes.append(f"not carried over: max_len_a={growth}; outputs may be as long as their inputs and {longest} more")
    if options.small("unkpen", 0.0):
        notes.append(f"not carried over: unkpen={options.get('unkpen')}")
    return {
        "beam_size": options.number("beam", 5),
        "length_penalty": options.small("lenpen", 1.0),
        "length_penalty_form": "none" if options.get("unnormalized", False) else "length",
        "stopping_rule": "beam_finished",
        "max_length": f"input+{longest}" if growth else str(longest),
    }


def weight_mapping(config: Config, tensors: CheckpointTensors) -> WeightMapping:
    """The names."""
    model = config.model
    links = [*_embedding_links(model, tensors)]
    for stack, count in (("encoder", model.num_encoder_layers), ("decoder", model.num_decoder_layers)):
        for number in range(count):
            links += layer_links(f"{stack}.layers.{number}", f"{stack}.layers.{number}", stack)
        if model.has_final_norm:
            links += linear_links(f"{stack}.norm", f"{stack}.layer_norm")
    copies = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"} if model.tied_embeddings == "all" else {}
    if model.tied_embeddings != "none":
        copies |= dict.fromkeys(OUTPUTS, "decoder.embed_tokens.weight")
    return WeightMapping(links, copies, r"(en|de)coder\.(version|embed_positions\._float_tensor)")


def _embedding_links(model: ModelConfig, tensors: CheckpointTensors) -> list[TensorLink]:
    links = [TensorLink("source_embedding.tokens.weight", "encoder.embed_tokens.weight")]
    if model.tied_embeddings != "all":
        links.append(TensorLink("target_embedding.tokens.weight", "decoder.embed_tokens.weight"))
    if model.tied_embeddings == "none":
        links.append(
            TensorLink("output.weight", next((name for name in OUTPUTS if name in tensors.shapes), OUTPUTS[0]))
        )
    if model.embedding_norm:
        for stack, ours in (("encoder", "source_embedding"), ("decoder", "target_embedding")):
            links += linear_links(f"{ours}.norm", f"{stack}.layernorm_embedding")
    return links


def _tokenizer(
    path: Path, dictionaries: Sequence[Path], codes: Path | None, model: ModelConfig, options: SettingsReader
) -> ImportedTokenizer:
    """Both sides, which share the codes."""
    sizes = [model.read_vocab_size, model.vocab_size]
    files = _find_dictionaries(path, dictionaries, sizes, options)
    pieces = [_read_dictionary(file, size) for file, size in zip(files, sizes, strict=True)]
    codes = codes or _find_file(path, CODES)
    sides = []
    for names, size in zip(pieces, sizes, strict=True):
        ids = {name: index for index, name in reversed([*enumerate([*SPECIALS, *names])])}
        if codes is None:
            pipeline, cut = words_pipeline(names)
        elif codes.suffix == ".model":
            pipeline, known = SentencePieceModel.read(codes).pipeline()
            cut = list(known)
        else:
            pipeline, cut = bpe_pipeline(codes, names)
        spelling = "metaspace" if codes is not None and codes.suffix == ".model" else "joiner"
        sides.append(build_tokenizer(pipeline, cut, ids, spelling, ROLES, size))  # type: ignore[arg-type]
    return ImportedTokenizer(sides[0].pipeline, sides[0].vocabulary, target=sides[1])


def _read_dictionary(path: Path, size: int) -> list[str]:
    """The pieces of a dictionary, whose lines are a piece and its count."""
    pieces = []
    for number, line in enumerate(read_lines(path), 1):
        if line:
            piece, space, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
            if not space or not count.isdigit():
                raise InteropError(f"{path}:{number}: expected a piece and its count, found {line[:40]!r}")
            pieces.append(piece)
    if len(pieces) + len(SPECIALS) != size:
        raise InteropError(
            f"{path} has {len(pieces):,} pieces, the model {size - len(SPECIALS):,}; give the right --dict"
        )
    return pieces


def _find_dictionaries(path: Path, given: Sequence[Path], sizes: Sequence[int], options: SettingsReader) -> list[Path]:
    """The source's and the target's: as given, by the languages that the checkpoint names, or by their sizes."""
    if given:
        return [given[0], given[-1]]
    languages = [options.get("source_lang"), options.get("target_lang")]
    if all(languages):
        named = [_find_file(path, (f"dict.{language}.txt",)) for language in languages]
        if all(named):
            return [file for file in named if file]
    found = sorted(file for folder in _search_folders(path) for file in folder.glob("dict.*.txt"))
    counts = {file: sum(bool(line) for line in read_lines(file)) + len(SPECIALS) for file in found}
    fitting = [[file for file in found if counts[file] == size] for size in sizes]
    if any(len(files) != 1 for files in fitting):
        there = ", ".join(map(str, found)) or "none"
        raise InteropError(
            f"cannot tell the dictionaries of source ({sizes[0]:,} pieces) and target ({sizes[1]:,}); found {there}. "
            "Give --dict SOURCE --dict TARGET"
        )
    return [files[0] for files in fitting]


def _search_folders(path: Path) -> list[Path]:
    """The folder of the file, and those next to it."""
    folder = path.resolve().parent
    return [folder, *sorted(other for other in folder.parent.iterdir() if other.is_dir() and other != folder)]


def _find_file(path: Path, patterns: Sequence[str]) -> Path | None:
    for folder in _search_folders(path):
        for pattern in patterns:
            for file in sorted(folder.glob(pattern)):
                if file.is_file():
                    return file
    return None
