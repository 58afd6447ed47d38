"""Import and export of the tokenizer files in Hugging Face folders.

The special tokens (padding, end, mask) are read from tokenizer_config.json and special_tokens_map.json; their defaults
depend on the model family.
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
from clearhead.data.tokenizer.imported import ImportedTokenizer, ImportedVocabulary, WordBoundary
from clearhead.errors import InteropError
from clearhead.interop.settings import SettingsReader
from clearhead.interop.subword_tokenizers import self_contained_sentencepiece_tokenizer, sentencepiece_tokenizer

TOKENIZER_FILE, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
CLEARHEAD_FILE = "clearhead_tokenizer.json"
"""Tokenizer in clearhead's format, if a single tokenizer.json cannot represent the tokenizer; `clearhead import` reads
it."""
CLEARHEAD_SECTION = "clearhead"
"""Key in tokenizer_config.json with the settings of a tokenizer that clearhead trained."""

SPECIAL_TOKEN_KEYS: dict[str, dict[str, tuple[str, ...]]] = {
    "encoder": {"bos": ("cls_token", "bos_token"), "eos": ("sep_token", "eos_token")},
    "decoder": {"bos": ("bos_token", "eos_token"), "eos": ("eos_token",)},
    "transformer": {"bos": ("pad_token",), "eos": ("eos_token",)},
}
"""Keys of the start and end token in tokenizer files, by model family; the first that is present is used."""
DEFAULT_SPECIAL_TOKENS: dict[str, dict[str, str]] = {
    "wordpiece": {
        "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]",
    },
    "bytes": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
    "metaspace": {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
}  # fmt: skip
_UNUSED = re.compile(r"\[unused\d+\]")
_SENTENCEPIECE_SPECIALS = {"pad": "<pad>", "bos": "<pad>", "eos": "</s>", "unk": "<unk>"}


def tokenizer_files(tokenizer: Tokenizer, config: Config) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return file name -> content of the tokenizer files, and notes on what could not be included."""
    if _needs_several_files(tokenizer):
        note = (
            f"the tokenizer was imported from several files and cannot be written as one {TOKENIZER_FILE}: copy the "
            f"original files for transformers; `clearhead import` reads {CLEARHEAD_FILE}"
        )
        return {CLEARHEAD_FILE: json.loads(tokenizer.to_json())}, [note]
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
    """Return the content of tokenizer.json, including a post-processor that adds the special tokens around a text."""
    state = json.loads(tokenizer.to_json())["tokenizer"]
    pipeline = Pipeline.from_str(json.dumps(state))
    if not isinstance(tokenizer, ImportedTokenizer):
        # The normalizer puts a space before a text. A normalized mask token is matched with that space, so that the
        # text after it is not normalized a second time: "A <mask>." keeps "." where it would become " .".
        specials = [tokenizer.token(index) for index in tokenizer.special_ids]
        mask = None if tokenizer.mask_id is None else tokenizer.token(tokenizer.mask_id)
        pipeline.add_special_tokens([AddedToken(name, special=True, normalized=name == mask) for name in specials])
    if pipeline.post_processor is None:
        pipeline.post_processor = _post_processor(tokenizer, config)
    return pipeline.to_str()


def _needs_several_files(tokenizer: Tokenizer) -> bool:
    """Return whether one tokenizer.json cannot represent the tokenizer.

    This is the case if source and target differ, or if token ids or a prefix differ from those of the pipeline.
    """
    if not isinstance(tokenizer, ImportedTokenizer):
        return False
    vocabulary = tokenizer.vocabulary
    return bool(vocabulary.ids or vocabulary.pieces or vocabulary.prefix) or tokenizer.target is not tokenizer


def _special_token_settings(tokenizer: Tokenizer, config: Config) -> dict[str, str]:
    """Return key in tokenizer_config.json -> special token."""
    ids = {"pad_token": tokenizer.pad_id, "unk_token": tokenizer.unk_id, "eos_token": tokenizer.eos_id}
    if config.model.family == "encoder":
        ids |= {"cls_token": tokenizer.bos_id, "sep_token": tokenizer.eos_id}
        del ids["eos_token"]
    elif tokenizer.bos_id != tokenizer.pad_id:
        ids["bos_token"] = tokenizer.bos_id
    if tokenizer.mask_id is not None:
        ids["mask_token"] = tokenizer.mask_id
    return {key: tokenizer.token(index) for key, index in ids.items() if 0 <= index < tokenizer.vocab_size}


def _post_processor(tokenizer: Tokenizer, config: Config) -> Any:
    """Return the post-processor that adds the special tokens around a text, or None if there are none."""
    begin, end = ((tokenizer.token(index), index) for index in (tokenizer.bos_id, tokenizer.eos_id))
    if config.model.head != "generation":
        return processors.TemplateProcessing(single=f"{begin[0]} $A {end[0]}", special_tokens=[begin, end])
    if config.model.family == "transformer":
        return processors.TemplateProcessing(single=f"$A {end[0]}", special_tokens=[end])
    if config.decoding.sampling.add_start_token and not isinstance(tokenizer, ImportedTokenizer):
        return processors.TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin])
    return None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or raise InteropError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InteropError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise InteropError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


def read_tokenizer(folder: Path, family: str, vocab_size: int, source_vocab_size: int = 0) -> Tokenizer:
    """Return the tokenizer of a folder for a model of this family and vocabulary size, or raise InteropError.

    `source_vocab_size` is the size of the source vocabulary, 0 if it is shared.
    """
    if (exported := _clearhead_tokenizer(folder)) is not None:
        if exported.target.vocab_size != vocab_size:
            raise InteropError(
                f"{folder}: the tokenizer has {exported.target.vocab_size:,} tokens, but the model has {vocab_size:,}"
            )
        return exported
    if not (folder / TOKENIZER_FILE).is_file():
        if (folder / "source.spm").is_file():
            return _marian_tokenizer(folder, vocab_size, source_vocab_size)
        if (folder / "spiece.model").is_file():
            return _t5_tokenizer(folder, vocab_size)
    pipeline = _pipeline(folder)
    ids = pipeline.get_vocab(with_added_tokens=True)
    vocabulary = _vocabulary(pipeline, ids, folder, family, vocab_size)
    if max(ids.values()) >= vocab_size:
        raise InteropError(
            f"{folder}: the tokenizer has {max(ids.values()) + 1:,} tokens, but the model has {vocab_size:,}"
        )
    return ImportedTokenizer(pipeline, vocabulary)


def _vocabulary(
    pipeline: Pipeline, ids: Mapping[str, int], folder: Path, family: str, vocab_size: int
) -> ImportedVocabulary:
    """Return the vocabulary of a pipeline, with its special tokens."""
    word_boundary = _word_boundary(pipeline, folder)
    names = DEFAULT_SPECIAL_TOKENS[word_boundary] | _special_tokens(folder)
    special_ids = {key: ids[name] for key, name in names.items() if name in ids}
    roles = {role: _first_present(special_ids, keys, role, folder) for role, keys in SPECIAL_TOKEN_KEYS[family].items()}
    pad = special_ids.get("pad_token") if family != "decoder" else vocab_size  # GPT-2 has no padding token
    if pad is None:
        raise InteropError(f"{folder}: the tokenizer has no pad_token; expected it in {TOKENIZER_CONFIG}")
    specials = {index for index, token in pipeline.get_added_tokens_decoder().items() if token.special}
    specials |= set(special_ids.values()) | {index for token, index in ids.items() if _UNUSED.fullmatch(token)}
    return ImportedVocabulary(
        size=vocab_size,
        spelling=word_boundary,
        pad=pad,
        unk=special_ids.get("unk_token"),
        mask=special_ids.get("mask_token"),
        specials=tuple(sorted(specials)),
        **roles,
    )


def _clearhead_tokenizer(folder: Path) -> Tokenizer | None:
    """Return the tokenizer of a folder that `clearhead export` wrote, or None if the folder has another one."""
    section = _tokenizer_config(folder).get(CLEARHEAD_SECTION)
    if (folder / TOKENIZER_FILE).is_file() and section is not None:
        state = read_json(folder / TOKENIZER_FILE) | {"added_tokens": [], "post_processor": None}
        return Tokenizer.from_json(json.dumps({"clearhead": section, "tokenizer": state}))
    has_others = any((folder / name).is_file() for name in (TOKENIZER_FILE, "source.spm"))
    if (folder / CLEARHEAD_FILE).is_file() and not has_others:
        return Tokenizer.from_json(json.dumps(read_json(folder / CLEARHEAD_FILE)))
    return None


def _t5_tokenizer(folder: Path, vocab_size: int) -> ImportedTokenizer:
    """Return the tokenizer of a SentencePiece model with `extra_ids` sentinel tokens after its own."""
    count = SettingsReader(_tokenizer_config(folder), str(folder)).token_id("extra_ids", 100)
    if count > vocab_size:
        raise InteropError(
            f"{folder}: expected extra_ids below the {vocab_size:,} tokens of the model, found {count:,}"
        )
    sentinels = [f"<extra_id_{number}>" for number in range(count - 1, -1, -1)]
    path = folder / "spiece.model"
    return self_contained_sentencepiece_tokenizer(path, vocab_size, sentinels, _SENTENCEPIECE_SPECIALS)


def _marian_tokenizer(folder: Path, vocab_size: int, source_vocab_size: int) -> ImportedTokenizer:
    """Return the tokenizer of two SentencePiece models, which share a vocabulary or have one each."""
    names = _SENTENCEPIECE_SPECIALS
    is_separate = bool(_tokenizer_config(folder).get("separate_vocabs", False))
    sides = []
    for model, file, size in (
        ("target.spm", "target_vocab.json", vocab_size),
        ("source.spm", "vocab.json", source_vocab_size or vocab_size),
    ):
        path = folder / (file if is_separate else "vocab.json")
        ids = read_json(path)
        if not all(isinstance(index, int) for index in ids.values()):
            raise InteropError(f"{path}: expected an object with an integer id for each token")
        if missing := sorted({*names.values()} - ids.keys()):
            raise InteropError(f"{path}: the vocabulary has no {' or '.join(missing)}")
        roles = {role: ids[name] for role, name in names.items()}
        sides.append(sentencepiece_tokenizer(folder / model, ids, roles, size))
    return ImportedTokenizer(sides[1].pipeline, sides[1].vocabulary, target=sides[0])


def _first_present(special_ids: Mapping[str, int], keys: tuple[str, ...], role: str, folder: Path) -> int:
    """Return the id of the first special token that the tokenizer has, or raise InteropError."""
    for key in keys:
        if key in special_ids:
            return special_ids[key]
    raise InteropError(f"{folder}: the tokenizer has no {' or '.join(keys)}, which is needed for {role}")


def _pipeline(folder: Path) -> Pipeline:
    """Return the pipeline of tokenizer.json, else of vocab.txt, else of vocab.json, or raise InteropError."""
    try:
        if (folder / TOKENIZER_FILE).is_file():
            return Pipeline.from_file(str(folder / TOKENIZER_FILE))
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
    """Return BERT's pipeline, whose vocabulary file has one token per line."""
    options = _tokenizer_config(folder)
    tokens = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    ids = {token: index for index, token in enumerate(tokens)}
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
    """Return GPT-2's pipeline: byte-pair encoding of bytes, each represented by a printable character."""
    model = models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    pipeline = Pipeline(model)
    add_space = bool(_tokenizer_config(folder).get("add_prefix_space", False))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_space)
    pipeline.decoder = decoders.ByteLevel()
    names = _special_tokens(folder) or DEFAULT_SPECIAL_TOKENS["bytes"]
    pipeline.add_special_tokens([AddedToken(name, special=True) for name in dict.fromkeys(names.values())])
    return pipeline


def _word_boundary(pipeline: Pipeline, folder: Path) -> WordBoundary:
    """Return how tokens mark word boundaries, derived from the steps of the pipeline, or raise InteropError."""
    state = json.loads(pipeline.to_str())
    steps = [step for name in ("pre_tokenizer", "decoder") if state[name] for step in _flatten_steps(state[name])]
    types = {step["type"] for step in steps}
    if state["model"]["type"] == "WordPiece" and state["model"]["continuing_subword_prefix"] == "##":
        return "wordpiece"
    if "ByteLevel" in types:
        return "bytes"
    if "Metaspace" in types:
        return "metaspace"
    listed = ", ".join(sorted(types)) or "none"
    raise InteropError(
        f"{folder}: a {state['model']['type']} tokenizer with the steps {listed} is not supported; "
        "expected WordPiece, ByteLevel or Metaspace"
    )


def _flatten_steps(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the steps of a sequence, or the step itself if it is not a sequence."""
    steps = step.get("pretokenizers") or step.get("decoders")
    return [inner for outer in steps for inner in _flatten_steps(outer)] if steps else [step]


def _tokenizer_config(folder: Path) -> dict[str, Any]:
    path = folder / TOKENIZER_CONFIG
    return read_json(path) if path.is_file() else {}


def _special_tokens(folder: Path) -> dict[str, str]:
    """Return key (such as pad_token) -> special token, from the files of the folder."""
    tokens = dict[str, str]()
    path = folder / "special_tokens_map.json"
    for settings in (read_json(path) if path.is_file() else {}, _tokenizer_config(folder)):
        for key, token in settings.items():
            name = token.get("content") if isinstance(token, dict) else token
            if key.endswith("_token") and isinstance(name, str):
                tokens[key] = name
    return tokens
