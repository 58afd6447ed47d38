"""Import of fairseq's Transformer checkpoints: a .pt file of settings and tensors, with dictionaries and BPE codes."""

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
from clearhead.interop.settings import Settings, SettingsReader
from clearhead.interop.subword_tokenizers import (
    SentencePieceModel,
    bpe_pipeline,
    build_tokenizer,
    read_lines,
    words_pipeline,
)
from clearhead.interop.weight_mapping import (
    ImportedModel,
    TensorLink,
    WeightMapping,
    check_parameter_count,
    import_weights,
    linear_links,
)

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
"""Tokens with the ids 0 to 3, which dictionaries do not contain."""
ROLES = {"bos": 0, "pad": 1, "eos": 2, "unk": 3}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_fast": "gelu_tanh", "gelu_accurate": "gelu_tanh", "swish": "silu"}
CODES_PATTERNS = ("*code*", "*.bpe", "sentencepiece*.model")
OUTPUT_NAMES = ("decoder.output_projection.weight", "decoder.embed_out")  # the second one in old checkpoints


def is_checkpoint(content: Any) -> bool:
    """Return whether the content of a .pt file is a fairseq checkpoint."""
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        return False
    return bool(content.get("args") or content.get("cfg"))


def read_checkpoint(
    content: Mapping[str, Any], path: Path, dictionaries: Sequence[Path], codes: Path | None, settings: Settings
) -> ImportedModel:
    """Return the model of a loaded checkpoint; `settings` override those that it contains."""
    tensors = InMemoryTensors({name: tensor for name, tensor in content["model"].items() if isinstance(tensor, Tensor)})
    cfg = _to_dict(content.get("cfg"))
    options = SettingsReader(_to_dict(content.get("args") or cfg.get("model")), str(path))
    generation = SettingsReader(_to_dict(cfg.get("generation")), str(path))
    notes: list[str] = []
    checkpoint_settings = {**_model_settings(options, tensors), "decoding": _decoding_settings(generation, notes)}
    config = configs.parse(configs.merge(checkpoint_settings, settings))
    check_parameter_count(config.model, tensors)
    tokenizer = _tokenizer(path, dictionaries, codes, config.model, options)
    config = configs.override(config, {"tokenizer": {"kind": "imported", "vocab_size": tokenizer.vocab_size}})
    mapped = import_weights(weight_mapping(config, tensors), tensors, config.model)
    return ImportedModel(config, mapped.weights, tokenizer, mapped.unused_tensors, "fairseq transformer", notes)


def _to_dict(settings: Any) -> dict[str, Any]:
    """Return settings as a dictionary; empty if there are none."""
    if isinstance(settings, Namespace):
        return dict(vars(settings))
    return dict(settings) if isinstance(settings, Mapping) else {}


def _check_options(options: SettingsReader) -> None:
    """Raise InteropError for options that clearhead does not support."""
    arch = str(options.get("arch", options.get("_name", "")))
    if not arch.startswith("transformer") or "lm" in arch.split("_"):
        raise InteropError(
            f"{options.name}: arch {arch} is not supported; expected a transformer of the task translation"
        )
    options.require(
        adaptive_softmax_cutoff=None, no_cross_attention=False, cross_self_attention=False, adaptive_input=False,
        encoder_learned_pos=False, decoder_learned_pos=False, no_decoder_final_norm=False, encoder_layers_to_keep=None,
        decoder_layers_to_keep=None,
    )  # fmt: skip
    for name in ("embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before"):
        options.require(**{f"decoder_{name}": options.get(f"encoder_{name}")})
    width = options.positive_int("encoder_embed_dim", 512)
    options.require(decoder_input_dim=width, decoder_output_dim=width)


def _model_settings(options: SettingsReader, tensors: CheckpointTensors) -> Settings:
    """Return the settings of task, data and model, or raise InteropError."""
    _check_options(options)
    sizes = [_vocab_size(tensors, f"{stack}.embed_tokens.weight") for stack in ("encoder", "decoder")]
    is_shared = bool(options.get("share_all_embeddings"))
    is_tied = bool(options.get("share_decoder_input_output_embed"))
    max_positions = min(options.positive_int(f"max_{side}_positions", 1024) for side in ("source", "target"))
    languages = language_pair(options.get("source_lang", ""), options.get("target_lang", ""))
    return {
        "task": "translate",
        "data": {"max_tokens": max_positions, "split": "sentences", "languages": languages},
        "model": {
            "num_encoder_layers": options.positive_int("encoder_layers", 6),
            "num_decoder_layers": options.positive_int("decoder_layers", 6),
            "model_dim": options.positive_int("encoder_embed_dim", 512),
            "feed_forward_dim": options.positive_int("encoder_ffn_embed_dim", 2048),
            "num_heads": options.positive_int("encoder_attention_heads", 8),
            "dropout": options.number("dropout", 0.1),
            "norm_placement": "pre" if options.get("encoder_normalize_before", False) else "post",
            "activation": options.choice("activation_fn", "relu", ACTIVATIONS, "activation"),
            "positions": "none" if options.get("no_token_positional_embeddings", False) else "sinusoidal",
            "sinusoidal_layout": "fairseq",
            "max_positions": max_positions,
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
    """Return the number of rows of an embedding, or raise InteropError."""
    if len(tensors.shapes.get(name, ())) != 2:
        raise InteropError(f"the checkpoint has no matrix {name}; expected an encoder-decoder Transformer of fairseq")
    return tensors.shapes[name][0]


def _decoding_settings(options: SettingsReader, notes: list[str]) -> Settings:
    """Return the decoding settings of the checkpoint, with fairseq's defaults.

    fairseq's length limit does not count the end token, clearhead's does, hence the 1.
    """
    growth, limit = options.number("max_len_a", 0.0), int(options.get("max_len_b", 200)) + 1
    if growth not in (0.0, 1.0):
        notes.append(f"not imported: max_len_a={growth}; outputs may have {limit} tokens more than their inputs")
    if options.number("unkpen", 0.0):
        notes.append(f"not imported: unkpen={options.get('unkpen')}")
    return {
        "beam_size": options.positive_int("beam", 5),
        "length_penalty": options.number("lenpen", 1.0),
        "length_penalty_form": "none" if options.get("unnormalized", False) else "length",
        "stopping_rule": "beam_finished",
        "max_length": f"input+{limit}" if growth else str(limit),
    }


def weight_mapping(config: Config, tensors: CheckpointTensors) -> WeightMapping:
    """Return the mapping of a checkpoint."""
    model = config.model
    links = [*_embedding_links(model, tensors)]
    for stack, num_layers in (("encoder", model.num_encoder_layers), ("decoder", model.num_decoder_layers)):
        for number in range(num_layers):
            links += layer_links(f"{stack}.layers.{number}", f"{stack}.layers.{number}", stack)
        if model.has_final_norm:
            links += linear_links(f"{stack}.norm", f"{stack}.layer_norm")
    copies = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"} if model.tied_embeddings == "all" else {}
    if model.tied_embeddings != "none":
        copies |= dict.fromkeys(OUTPUT_NAMES, "decoder.embed_tokens.weight")
    return WeightMapping(links, copies, r"(en|de)coder\.(version|embed_positions\._float_tensor)")


def _embedding_links(model: ModelConfig, tensors: CheckpointTensors) -> list[TensorLink]:
    links = [TensorLink("source_embedding.tokens.weight", "encoder.embed_tokens.weight")]
    if model.tied_embeddings != "all":
        links.append(TensorLink("target_embedding.tokens.weight", "decoder.embed_tokens.weight"))
    if model.tied_embeddings == "none":
        output = next((name for name in OUTPUT_NAMES if name in tensors.shapes), OUTPUT_NAMES[0])
        links.append(TensorLink("output.weight", output))
    if model.embedding_norm:
        for stack, local in (("encoder", "source_embedding"), ("decoder", "target_embedding")):
            links += linear_links(f"{local}.norm", f"{stack}.layernorm_embedding")
    return links


def _tokenizer(
    path: Path, dictionaries: Sequence[Path], codes: Path | None, model: ModelConfig, options: SettingsReader
) -> ImportedTokenizer:
    """Return the tokenizers of source and target, which have the same BPE codes."""
    sizes = [model.input_vocab_size, model.vocab_size]
    files = _find_dictionaries(path, dictionaries, sizes, options)
    vocabularies = [_read_dictionary(file, size) for file, size in zip(files, sizes, strict=True)]
    codes = codes or _find_file(path, CODES_PATTERNS)
    sides = []
    for vocabulary, size in zip(vocabularies, sizes, strict=True):
        ids = {token: index for index, token in reversed([*enumerate([*SPECIALS, *vocabulary])])}
        if codes is None:
            pipeline, tokens = words_pipeline(vocabulary)
        elif codes.suffix == ".model":
            pipeline, tokens = SentencePieceModel.read(codes).pipeline()
        else:
            pipeline, tokens = bpe_pipeline(codes, vocabulary)
        spelling = "metaspace" if codes is not None and codes.suffix == ".model" else "joiner"
        sides.append(build_tokenizer(pipeline, tokens, ids, spelling, ROLES, size))  # type: ignore[arg-type]
    return ImportedTokenizer(sides[0].pipeline, sides[0].vocabulary, target=sides[1])


def _read_dictionary(path: Path, size: int) -> list[str]:
    """Return the tokens of a dictionary, which has a token and its count per line.

    Raise InteropError if the file has another format or another number of tokens than the model.
    """
    tokens = []
    for number, line in enumerate(read_lines(path), 1):
        if line:
            token, space, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
            if not space or not count.isdigit():
                raise InteropError(f"{path}:{number}: expected a token and its count, found {line[:40]!r}")
            tokens.append(token)
    if len(tokens) + len(SPECIALS) != size:
        raise InteropError(
            f"{path} has {len(tokens):,} tokens, but the model has {size - len(SPECIALS):,}; pass the dictionary of "
            "the model with --dict"
        )
    return tokens


def _find_dictionaries(path: Path, files: Sequence[Path], sizes: Sequence[int], options: SettingsReader) -> list[Path]:
    """Return the dictionaries of source and target.

    These are the `files` that the user named, else files named after the languages of the checkpoint, else the only
    files near the checkpoint with the right number of tokens. Raise InteropError if there is no such choice.
    """
    if files:
        return [files[0], files[-1]]
    languages = [options.get("source_lang"), options.get("target_lang")]
    if all(languages):
        by_language = [_find_file(path, (f"dict.{language}.txt",)) for language in languages]
        if all(by_language):
            return [file for file in by_language if file]
    candidates = sorted(file for folder in _search_folders(path) for file in folder.glob("dict.*.txt"))
    counts = {file: sum(bool(line) for line in read_lines(file)) + len(SPECIALS) for file in candidates}
    by_size = [[file for file in candidates if counts[file] == size] for size in sizes]
    if any(len(files) != 1 for files in by_size):
        raise InteropError(
            f"cannot determine the dictionaries of source ({sizes[0]:,} tokens) and target ({sizes[1]:,}); found "
            f"{', '.join(map(str, candidates)) or 'none'}; name them with --dict SOURCE --dict TARGET"
        )
    return [files[0] for files in by_size]


def _search_folders(path: Path) -> list[Path]:
    """Return the folder of the checkpoint and its sibling folders."""
    folder = path.resolve().parent
    return [folder, *sorted(other for other in folder.parent.iterdir() if other.is_dir() and other != folder)]


def _find_file(path: Path, patterns: Sequence[str]) -> Path | None:
    """Return the first file that matches a pattern, or None."""
    for folder in _search_folders(path):
        for pattern in patterns:
            for file in sorted(folder.glob(pattern)):
                if file.is_file():
                    return file
    return None
