"""A tokenizer of ours as the files that `transformers` and `tokenizers` read.

Tokenizer files of Hugging Face folders, as tokenizers of ours.

What the pieces are for (padding, the end, masks) stands in further files, or is told by the family.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Pipeline

from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.imported import ImportedTokenizer, ImportedVocabulary, Spelling
from clearhead.errors import InteropError
from clearhead.interop.settings import SettingsReader
from clearhead.interop.subword_tokenizers import self_contained_sentencepiece_tokenizer, sentencepiece_tokenizer

TOKENIZER_FILE, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
CLEARHEAD_FILE = "clearhead_tokenizer.json"
"""A tokenizer that `transformers` cannot hold in one file, in clearhead's format, for `clearhead import`."""
CLEARHEAD_SECTION = "clearhead"
"""Key in tokenizer_config.json with the settings of a tokenizer that clearhead trained."""


def tokenizer_files(tokenizer: Tokenizer, config: Config) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the content of each file by its name, and notes on what could not be included."""
    if _needs_several_files(tokenizer):
        note = f"the tokenizer was imported from several files, which one {TOKENIZER_FILE} cannot hold: copy the old files for "
        return {CLEARHEAD_FILE: json.loads(tokenizer.to_json())}, [
            f"{note}transformers; `clearhead import` reads {CLEARHEAD_FILE}"
        ]
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.model.max_positions,
        "clean_up_tokenization_spaces": False,
        **_special_token_settings(tokenizer, config),
    }
    if not isinstance(tokenizer, ImportedTokenizer):
        settings[CLEARHEAD_SECTION] = json.loads(tokenizer.to_json())["clearhead"]
    return {TOKENIZER_FILE: json.loads(pipeline_with_special_tokens(tokenizer, config)), TOKENIZER_CONFIG: settings}, []


def pipeline_with_special_tokens(tokenizer: Tokenizer, config: Config) -> str:
    """Return tokenizer.json of the `tokenizers` library, which adds the special tokens that the network expects."""
    state = json.loads(tokenizer.to_json())["tokenizer"]
    pipeline = Pipeline.from_str(json.dumps(state))
    if not isinstance(tokenizer, ImportedTokenizer):
        # The normalizer puts a space before a text. A normalized mask token is matched with that space, so that the
        # text after it is not normalized a second time: "A <mask>." keeps "." where it would become " .".
        specials = [tokenizer.piece(index) for index in tokenizer.special_ids]
        mask = None if tokenizer.mask_id is None else tokenizer.piece(tokenizer.mask_id)
        pipeline.add_special_tokens([AddedToken(name, special=True, normalized=name == mask) for name in specials])
    if pipeline.post_processor is None:
        pipeline.post_processor = _post_processor(tokenizer, config)
    return pipeline.to_str()


def _needs_several_files(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer was imported from several files: two sides, or a pipeline with other ids than the model."""
    if not isinstance(tokenizer, ImportedTokenizer):
        return False
    own = tokenizer.vocabulary
    return bool(own.ids or own.pieces or own.prefix) or tokenizer.target is not tokenizer


def _special_token_settings(tokenizer: Tokenizer, config: Config) -> dict[str, str]:
    """The special pieces by their names for them."""
    ids = {"pad_token": tokenizer.pad_id, "unk_token": tokenizer.unk_id, "eos_token": tokenizer.eos_id}
    if config.model.family == "encoder":
        ids |= {"cls_token": tokenizer.bos_id, "sep_token": tokenizer.eos_id}
        del ids["eos_token"]
    elif tokenizer.bos_id != tokenizer.pad_id:
        ids["bos_token"] = tokenizer.bos_id
    if tokenizer.mask_id is not None:
        ids["mask_token"] = tokenizer.mask_id
    return {role: tokenizer.piece(index) for role, index in ids.items() if 0 <= index < tokenizer.vocab_size}


def _post_processor(tokenizer: Tokenizer, config: Config) -> Any:
    """Return the post-processor that adds the special tokens around a text, or None if there are none."""
    begin, end = ((tokenizer.piece(index), index) for index in (tokenizer.bos_id, tokenizer.eos_id))
    if config.model.head != "generation":
        return processors.TemplateProcessing(single=f"{begin[0]} $A {end[0]}", special_tokens=[begin, end])
    if config.model.family == "transformer":
        return processors.TemplateProcessing(single=f"$A {end[0]}", special_tokens=[end])
    if config.decoding.sampling.add_start_token and not isinstance(tokenizer, ImportedTokenizer):
        return processors.TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin])
    return None


SPECIAL_TOKEN_KEYS: dict[
    str, dict[str, tuple[str, ...]]
] = {  # the kind of network -> our role -> their names for it, the first that is there
    "encoder": {"bos": ("cls_token", "bos_token"), "eos": ("sep_token", "eos_token")},
    "decoder": {"bos": ("bos_token", "eos_token"), "eos": ("eos_token",)},
    "transformer": {"bos": ("pad_token",), "eos": ("eos_token",)},
}
DEFAULT_SPECIAL_TOKENS: dict[str, dict[str, str]] = {
    "wordpiece": {
        "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]",
    },
    "bytes": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
    "metaspace": {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
}  # fmt: skip
_UNUSED = re.compile(r"\[unused\d+\]")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InteropError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise InteropError(f"{path} must hold a JSON object, found {type(found).__name__}")
    return found


def read_tokenizer(folder: Path, family: str, vocab_size: int, source_size: int = 0) -> Tokenizer:
    """The tokenizer of a folder, for a network of that family that has rows for so many pieces."""
    if (own := _clearhead_tokenizer(folder)) is not None:
        if own.target.vocab_size != vocab_size:
            raise InteropError(
                f"{folder}: the tokenizer has {own.target.vocab_size:,} tokens, the model {vocab_size:,}"
            )
        return own
    if (folder / "source.spm").is_file() and not (folder / "tokenizer.json").is_file():
        return _marian_tokenizer(folder, vocab_size, source_size)
    if (folder / "spiece.model").is_file() and not (folder / "tokenizer.json").is_file():
        count = SettingsReader(_tokenizer_config(folder), str(folder)).identifier("extra_ids", 100)
        if count > vocab_size:
            raise InteropError(
                f"{folder}: expected extra_ids below the {vocab_size:,} pieces of the model, found {count:,}"
            )
        extra = [f"<extra_id_{number}>" for number in range(count - 1, -1, -1)]
        pieces = {"pad": "<pad>", "bos": "<pad>", "eos": "</s>", "unk": "<unk>"}
        return self_contained_sentencepiece_tokenizer(folder / "spiece.model", vocab_size, extra, pieces)
    pipeline = _pipeline(folder)
    spelling = _spelling(pipeline, folder)
    ids = pipeline.get_vocab(with_added_tokens=True)
    names = DEFAULT_SPECIAL_TOKENS[spelling] | _special_tokens(folder)
    known = {role: ids[name] for role, name in names.items() if name in ids}
    roles = {role: _first_known(known, theirs, role, folder) for role, theirs in SPECIAL_TOKEN_KEYS[family].items()}
    pad = known.get("pad_token") if family != "decoder" else vocab_size  # left-to-right models have none of their own
    if pad is None:
        raise InteropError(f"{folder}: the tokenizer names no pad_token; expected it in tokenizer_config.json")
    specials = {index for index, token in pipeline.get_added_tokens_decoder().items() if token.special}
    specials |= set(known.values()) | {index for piece, index in ids.items() if _UNUSED.fullmatch(piece)}
    vocabulary = ImportedVocabulary(
        size=vocab_size,
        spelling=spelling,
        pad=pad,
        unk=known.get("unk_token"),
        mask=known.get("mask_token"),
        specials=tuple(sorted(specials)),
        **roles,
    )
    if max(ids.values()) >= vocab_size:
        raise InteropError(f"{folder}: the tokenizer has {max(ids.values()) + 1:,} pieces, the model {vocab_size:,}")
    return ImportedTokenizer(pipeline, vocabulary)


def _clearhead_tokenizer(folder: Path) -> Tokenizer | None:
    """Return the tokenizer of a folder that `clearhead export` wrote, or None if the folder has another one."""
    section = _tokenizer_config(folder).get(CLEARHEAD_SECTION)
    if (folder / TOKENIZER_FILE).is_file() and section is not None:
        state = read_json(folder / TOKENIZER_FILE) | {"added_tokens": [], "post_processor": None}
        return Tokenizer.from_json(json.dumps({"clearhead": section, "tokenizer": state}))
    if (folder / CLEARHEAD_FILE).is_file() and not any(
        (folder / name).is_file() for name in (TOKENIZER_FILE, "source.spm")
    ):
        return Tokenizer.from_json(json.dumps(read_json(folder / CLEARHEAD_FILE)))
    return None


def _marian_tokenizer(folder: Path, size: int, source_size: int) -> ImportedTokenizer:
    """Two SentencePiece models, and one vocabulary for both or one for each."""
    names = {"pad": "<pad>", "bos": "<pad>", "eos": "</s>", "unk": "<unk>"}
    is_separate = bool(_tokenizer_config(folder).get("separate_vocabs", False))
    sides = []
    for model, file, rows in (
        ("target.spm", "target_vocab.json", size),
        ("source.spm", "vocab.json", source_size or size),
    ):
        ids = read_json(folder / (file if is_separate else "vocab.json"))
        if not all(isinstance(index, int) for index in ids.values()) or names["unk"] not in ids:
            raise InteropError(f"{folder}: the vocabulary must number its pieces, {names['unk']} among them")
        roles = {role: ids[name] for role, name in names.items() if name in ids}
        if len(roles) < len(names):
            raise InteropError(f"{folder}: the vocabulary has no {' or '.join(sorted({*names.values()} - ids.keys()))}")
        sides.append(sentencepiece_tokenizer(folder / model, ids, roles, rows))
    return ImportedTokenizer(sides[1].pipeline, sides[1].vocabulary, target=sides[0])


def _first_known(known: Mapping[str, int], theirs: tuple[str, ...], role: str, folder: Path) -> int:
    for name in theirs:
        if name in known:
            return known[name]
    raise InteropError(f"{folder}: the tokenizer has no {' or '.join(theirs)}, which is needed for {role}")


def _pipeline(folder: Path) -> Pipeline:
    """From the most complete of the files that are there."""
    try:
        if (folder / "tokenizer.json").is_file():
            return Pipeline.from_file(str(folder / "tokenizer.json"))
        if (folder / "vocab.txt").is_file():
            return _wordpiece(folder)
        if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
            return _byte_level(folder)
    except InteropError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise InteropError(f"{folder}: the tokenizer cannot be read: {error}") from error
    raise InteropError(
        f"{folder} has no tokenizer; expected tokenizer.json, vocab.txt, vocab.json with merges.txt, spiece.model, or "
        "source.spm with target.spm and vocab.json"
    )


def _wordpiece(folder: Path) -> Pipeline:
    """BERT's: one piece a line."""
    options = _tokenizer_config(folder)
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    ids = {piece: index for index, piece in enumerate(pieces)}
    unknown = _special_tokens(folder).get("unk_token", "[UNK]")
    pipeline = Pipeline(models.WordPiece(ids, unk_token=unknown, max_input_chars_per_word=100))
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(options.get("tokenize_chinese_chars", True)),
        strip_accents=options.get("strip_accents"),
        lowercase=bool(options.get("do_lower_case", True)),
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix="##")
    return pipeline


def _byte_level(folder: Path) -> Pipeline:
    """GPT-2's: merges of bytes that are written as letters."""
    model = models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    pipeline = Pipeline(model)
    add_space = bool(_tokenizer_config(folder).get("add_prefix_space", False))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_space)
    pipeline.decoder = decoders.ByteLevel()
    names = _special_tokens(folder) or DEFAULT_SPECIAL_TOKENS["bytes"]
    pipeline.add_special_tokens([AddedToken(name, special=True) for name in dict.fromkeys(names.values())])
    return pipeline


def _spelling(pipeline: Pipeline, folder: Path) -> Spelling:
    """How pieces stand for text, from the parts of the pipeline."""
    state = json.loads(pipeline.to_str())
    parts = {
        part["type"] for name in ("pre_tokenizer", "decoder") if state[name] for part in _flatten_steps(state[name])
    }
    if state["model"]["type"] == "WordPiece" and state["model"]["continuing_subword_prefix"] == "##":
        return "wordpiece"
    if "ByteLevel" in parts:
        return "bytes"
    if "Metaspace" in parts:
        return "metaspace"
    found = ", ".join(sorted(parts)) or "none"
    raise InteropError(f"{folder}: a {state['model']['type']} tokenizer with the parts {found} is not supported")


def _flatten_steps(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A part of a pipeline, or those that it is a sequence of."""
    inner = part.get("pretokenizers") or part.get("decoders")
    return [each for one in inner for each in _flatten_steps(one)] if inner else [part]


def _tokenizer_config(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}


def _special_tokens(folder: Path) -> dict[str, str]:
    """The special pieces that the folder names, such as pad_token."""
    found = dict[str, str]()
    path = folder / "special_tokens_map.json"
    for settings in (read_json(path) if path.is_file() else {}, _tokenizer_config(folder)):
        for role, token in settings.items():
            name = token.get("content") if isinstance(token, dict) else token
            if role.endswith("_token") and isinstance(name, str):
                found[role] = name
    return found
