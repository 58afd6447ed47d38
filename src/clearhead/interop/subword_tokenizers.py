"""Tokenizers that consist of two files: a segmentation (SentencePiece, BPE codes or words) and a vocabulary.

A segmentation is a pipeline of the `tokenizers` library, with its tokens in the order of the pipeline's ids.
`build_tokenizer` maps these ids to the token ids of the model.

SentencePiece .model files are protocol buffers that contain tokens with scores. They are read without the SentencePiece
library. Only unigram models are supported, since the `tokenizers` library segments them in the same way.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

from clearhead.data.tokenizer.imported import JOINER, ImportedTokenizer, ImportedVocabulary, WordBoundary
from clearhead.errors import InteropError

NORMAL, UNKNOWN_KIND, USER_DEFINED = 1, 2, 4  # kinds of tokens; tokens of other kinds never occur in text
MODEL_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
# Field numbers of the protocol buffers: model, token, trainer settings, normalizer settings.
TOKENS, TRAINER, NORMALIZER = 1, 2, 3
NAME, SCORE, KIND = 1, 2, 3
MODEL_KIND, BYTE_FALLBACK, SUFFIX = 3, 35, 24
CHARACTER_MAP, DUMMY_PREFIX, REMOVE_SPACES, ESCAPE = 2, 3, 4, 5

END_OF_WORD = "</w>"
UNKNOWN_TOKEN = "<unk>"


@dataclass(frozen=True)
class SentencePieceToken:
    """Entry of the vocabulary; its index is its id."""

    name: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieceModel:
    """Content of a .model file."""

    tokens: tuple[SentencePieceToken, ...]
    character_map: bytes
    """Table of character replacements, compiled by SentencePiece."""
    adds_prefix: bool
    removes_spaces: bool

    @classmethod
    def read(cls, path: Path) -> "SentencePieceModel":
        """Return the model in a file, or raise InteropError."""
        try:
            data = path.read_bytes()
            tokens, trainer, normalizer = [], {}, {}
            for field, value in _fields(data):
                if field == TOKENS:
                    tokens.append(_token(value))
                elif field == TRAINER:
                    trainer = dict(_fields(value))
                elif field == NORMALIZER:
                    normalizer = dict(_fields(value))
        except OSError as error:
            raise InteropError(f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, IndexError, TypeError, struct.error) as error:
            raise InteropError(f"{path} is not a SentencePiece model: {error}") from error
        kind = MODEL_KINDS.get(_number(trainer.get(MODEL_KIND, 1)), "unknown")
        if kind != "unigram" or not tokens:
            raise InteropError(f"{path}: a SentencePiece model of kind {kind} is not supported; expected unigram")
        for field, name in ((BYTE_FALLBACK, "byte_fallback"), (SUFFIX, "treat_whitespace_as_suffix")):
            if trainer.get(field):
                raise InteropError(f"{path}: {name} is not supported in a SentencePiece model; expected false")
        if not normalizer.get(ESCAPE, 1):
            raise InteropError(f"{path}: escape_whitespaces=false is not supported in a SentencePiece model")
        character_map = normalizer.get(CHARACTER_MAP, b"")
        adds_prefix, removes_spaces = (bool(normalizer.get(field, 1)) for field in (DUMMY_PREFIX, REMOVE_SPACES))
        return cls(tuple(tokens), bytes(character_map), adds_prefix, removes_spaces)

    def pipeline(self) -> tuple[Pipeline, list[str]]:
        """Return the pipeline that segments text like SentencePiece, and its tokens, of which the first is <unk>."""
        regular = [token for token in self.tokens if token.kind in (NORMAL, USER_DEFINED)]
        unknown = next((token.name for token in self.tokens if token.kind == UNKNOWN_KIND), "<unk>")
        best = max((token.score for token in regular), default=0.0)
        # A user-defined symbol is never split, because with this score no other segmentation is as probable.
        scores = [
            (token.name, best * len(token.name) if token.kind == USER_DEFINED else token.score) for token in regular
        ]
        # The pipeline names the unknown token NUL: this character hardly occurs in text, and would be unknown anyway.
        pipeline = Pipeline(models.Unigram([("\0", 0.0), *scores], unk_id=0))
        steps: list[normalizers.Normalizer] = []
        if self.character_map:
            steps.append(normalizers.Precompiled(self.character_map))
        if self.removes_spaces:
            steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
        pipeline.normalizer = normalizers.Sequence(steps)
        scheme = "always" if self.adds_prefix else "never"
        pipeline.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme, split=False)
        pipeline.decoder = decoders.Metaspace("▁", scheme)
        return pipeline, [unknown, *(token.name for token in regular)]


def _token(data: object) -> SentencePieceToken:
    fields = dict(_fields(data))
    name, score = fields[NAME], fields.get(SCORE, b"\0\0\0\0")
    if not isinstance(name, bytes) or not isinstance(score, bytes):
        raise ValueError("a token has no name")
    return SentencePieceToken(name.decode(), struct.unpack("<f", score)[0], _number(fields.get(KIND, NORMAL)))


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError("expected a number")
    return value


def _fields(data: object) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a protocol buffer in order: an int, or the bytes of a text, message or float."""
    if not isinstance(data, bytes):
        raise ValueError("expected a message")
    offset = 0
    while offset < len(data):
        key, offset = _varint(data, offset)
        field, wire_type = key >> 3, key & 7
        if wire_type == 0:
            number, offset = _varint(data, offset)
            yield field, number
            continue
        size = {1: 8, 5: 4}.get(wire_type)
        if wire_type == 2:
            size, offset = _varint(data, offset)
        if size is None or offset + size > len(data):
            raise ValueError("the file is truncated or has another format")
        yield field, data[offset : offset + size]
        offset += size


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return the variable-length integer (seven bits per byte) at an offset, and the offset after it."""
    number = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, offset
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def build_tokenizer(
    pipeline: Pipeline,
    tokens: Sequence[str],
    ids: Mapping[str, int],
    word_boundary: WordBoundary,
    roles: Mapping[str, int],
    size: int,
    prefix: Sequence[int] = (),
) -> ImportedTokenizer:
    """Return the tokenizer of a segmentation and a vocabulary, or raise InteropError if an id exceeds the vocabulary.

    `tokens` are those of the pipeline, in the order of its ids. `ids` maps tokens to the ids of the model, which has
    `size` tokens. `roles` are the ids of the special tokens pad, unk, bos and eos. `prefix` are ids that precede every
    text.
    """
    names = [""] * size
    for token, index in ids.items():
        if not 0 <= index < size:
            raise InteropError(f"the token {token!r} has the id {index}, but the model has {size:,} tokens")
        names[index] = token
    tags = {index for token, index in ids.items() if token.startswith(">>") and token.endswith("<<")}
    specials = {*roles.values()} | tags | {index for index, token in enumerate(names) if not token}
    # Text that looks like a special token is not encoded as one.
    regular_ids = {token: index for token, index in ids.items() if index not in specials}
    vocabulary = ImportedVocabulary(
        size=size,
        spelling=word_boundary,
        pad=roles["pad"],
        unk=roles["unk"],
        bos=roles["bos"],
        eos=roles["eos"],
        specials=tuple(sorted(specials)),
        pieces=tuple(names),
        ids=tuple(regular_ids.get(token, roles["unk"]) for token in tokens),
        prefix=tuple(prefix),
    )
    return ImportedTokenizer(pipeline, vocabulary)


def sentencepiece_tokenizer(
    path: Path, ids: Mapping[str, int], roles: Mapping[str, int], size: int
) -> ImportedTokenizer:
    """Return the tokenizer of a .model file with the ids of a vocabulary."""
    pipeline, tokens = SentencePieceModel.read(path).pipeline()
    return build_tokenizer(pipeline, tokens, ids, "metaspace", roles, size)


def self_contained_sentencepiece_tokenizer(
    path: Path, size: int, more_specials: Sequence[str], roles: Mapping[str, str]
) -> ImportedTokenizer:
    """Return the tokenizer of a .model file with the ids of that file, followed by further special tokens."""
    model = SentencePieceModel.read(path)
    names = [*(token.name for token in model.tokens), *more_specials]
    ids = {name: index for index, name in enumerate(names)}
    if missing := [name for name in roles.values() if name not in ids]:
        raise InteropError(f"{path} has no token {', '.join(missing)}; use the SentencePiece model of this checkpoint")
    tokenizer = sentencepiece_tokenizer(path, ids, {role: ids[name] for role, name in roles.items()}, size)
    specials = {*tokenizer.vocabulary.specials, *(ids[name] for name in more_specials)}
    vocabulary = tokenizer.vocabulary.model_copy(update={"specials": tuple(sorted(specials))})
    return ImportedTokenizer(model.pipeline()[0], vocabulary)


def bpe_pipeline(path: Path, vocabulary: Sequence[str]) -> tuple[Pipeline, list[str]]:
    """Return the pipeline for BPE codes of subword-nmt or fastBPE, and its tokens; @@ marks a continued word."""
    merges = _read_codes(path)
    symbols: dict[str, None] = {UNKNOWN_TOKEN: None}
    letters = {letter for pair in merges for side in pair for letter in side.removesuffix(END_OF_WORD)}
    letters |= {letter for token in vocabulary for letter in token.removesuffix(JOINER)}
    for letter in sorted(letters):
        symbols |= {letter: None, letter + END_OF_WORD: None}
    for left, right in merges:
        symbols |= {left: None, right: None, left + right: None}
    ids = {symbol: index for index, symbol in enumerate(symbols)}
    pipeline = Pipeline(models.BPE(ids, merges, unk_token=UNKNOWN_TOKEN, end_of_word_suffix=END_OF_WORD))
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokens = [
        symbol.removesuffix(END_OF_WORD) if symbol.endswith(END_OF_WORD) else symbol + JOINER for symbol in symbols
    ]
    return pipeline, [UNKNOWN_TOKEN, *tokens[1:]]


def _read_codes(path: Path) -> list[tuple[str, str]]:
    """Return the BPE merges in order; the last symbol of a word ends with the end-of-word mark."""
    lines = read_lines(path)
    if lines and lines[0].startswith("#version:"):
        version = lines.pop(0).removeprefix("#version:").strip()
        if version != "0.2":
            raise InteropError(f"{path}: BPE codes of version {version} are not supported; expected version 0.2")
    pairs = [line.split(" ") for line in lines if line.strip()]
    if not pairs or not all(len(pair) in (2, 3) for pair in pairs):
        raise InteropError(
            f"{path} contains no BPE codes; expected two symbols per line, as subword-nmt and fastBPE write"
        )
    if any(END_OF_WORD in pair[:2] for pair in pairs):
        raise InteropError(
            f"{path}: BPE codes of version 0.1, in which {END_OF_WORD} is a separate symbol, are not supported; "
            "expected version 0.2"
        )
    return list(dict.fromkeys((pair[0], pair[1]) for pair in pairs))


def words_pipeline(words: Sequence[str]) -> tuple[Pipeline, list[str]]:
    """Return the pipeline that splits text at spaces into the words of a vocabulary, and its tokens."""
    tokens = list(dict.fromkeys([UNKNOWN_TOKEN, *words]))
    pipeline = Pipeline(models.WordLevel({token: index for index, token in enumerate(tokens)}, unk_token=UNKNOWN_TOKEN))
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return pipeline, tokens


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file, or raise InteropError."""
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InteropError(f"cannot read {path}: {error}") from error
