"""SentencePiece .model files: a protocol buffer of pieces with scores, read here without its libraries.

Only unigram models; their search is that of the `tokenizers` library, over the whole text.

Tokenizers that come in parts: what cuts text (a SentencePiece model, BPE codes), and what numbers the pieces.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

from clearhead.data.tokenizer.imported import JOINER, ImportedTokenizer, ImportedVocabulary, Spelling
from clearhead.errors import InteropError

NORMAL, UNKNOWN_KIND, USER_DEFINED = 1, 2, 4  # kinds of pieces; others are never found in text
KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
# Numbers of the fields that are read: of the model, of a piece, of the trainer's and the normaliser's settings.
PIECES, TRAINER, NORMALISER = 1, 2, 3
NAME, SCORE, KIND = 1, 2, 3
MODEL_KIND, BYTE_FALLBACK, SUFFIX = 3, 35, 24
CHARACTERS, DUMMY_PREFIX, REMOVE_SPACES, ESCAPE = 2, 3, 4, 5


@dataclass(frozen=True)
class SentencePieceToken:
    """One entry of the vocabulary; its place is its id."""

    name: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieceModel:
    """What a .model file says."""

    pieces: tuple[SentencePieceToken, ...]
    characters: bytes
    """A table of replacements, compiled by SentencePiece."""
    adds_prefix: bool
    removes_spaces: bool

    @classmethod
    def read(cls, path: Path) -> "SentencePieceModel":
        """The model in a file."""
        try:
            data = path.read_bytes()
            pieces, trainer, normaliser = [], {}, {}
            for field, value in _fields(data):
                if field == PIECES:
                    pieces.append(_piece(value))
                elif field == TRAINER:
                    trainer = dict(_fields(value))
                elif field == NORMALISER:
                    normaliser = dict(_fields(value))
        except OSError as error:
            raise InteropError(f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, IndexError, TypeError, struct.error) as error:
            raise InteropError(f"{path} is no SentencePiece model: {error}") from error
        kind = KINDS.get(_number(trainer.get(MODEL_KIND, 1)), "unknown")
        if kind != "unigram" or not pieces:
            raise InteropError(f"SentencePiece model of kind {kind} is not supported, only unigram; found in {path}")
        for field, what in ((BYTE_FALLBACK, "byte_fallback"), (SUFFIX, "treat_whitespace_as_suffix")):
            if trainer.get(field):
                raise InteropError(f"{what} is not supported; the SentencePiece model {path} asks for it")
        if not normaliser.get(ESCAPE, 1):
            raise InteropError(f"escape_whitespaces=false is not supported; the SentencePiece model {path} asks for it")
        characters = normaliser.get(CHARACTERS, b"")
        adds_prefix, removes_spaces = (bool(normaliser.get(field, 1)) for field in (DUMMY_PREFIX, REMOVE_SPACES))
        return cls(tuple(pieces), bytes(characters), adds_prefix, removes_spaces)

    def pipeline(self) -> tuple[Pipeline, tuple[str, ...]]:
        """What cuts text like SentencePiece, and the pieces that it knows, by its own ids; the unknown one is first."""
        found = [piece for piece in self.pieces if piece.kind in (NORMAL, USER_DEFINED)]
        unknown = next((piece.name for piece in self.pieces if piece.kind == UNKNOWN_KIND), "<unk>")
        best = max((piece.score for piece in found), default=0.0)
        # A symbol of the user's is always kept whole: no other way of cutting it can score as well.
        scores = [(each.name, best * len(each.name) if each.kind == USER_DEFINED else each.score) for each in found]
        # The unknown piece has a name that text hardly holds, and if it does it is unknown indeed.
        pipeline = Pipeline(models.Unigram([("\0", 0.0), *scores], unk_id=0))
        steps: list[normalizers.Normalizer] = [normalizers.Precompiled(self.characters)] if self.characters else []
        if self.removes_spaces:
            steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
        pipeline.normalizer = normalizers.Sequence(steps)
        scheme = "always" if self.adds_prefix else "never"
        pipeline.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme, split=False)
        pipeline.decoder = decoders.Metaspace("▁", scheme)
        return pipeline, (unknown, *(piece.name for piece in found))


def _piece(data: object) -> SentencePieceToken:
    fields = dict(_fields(data))
    name, score = fields[NAME], fields.get(SCORE, b"\0\0\0\0")
    if not isinstance(name, bytes) or not isinstance(score, bytes):
        raise ValueError("a piece has no name")
    return SentencePieceToken(name.decode(), struct.unpack("<f", score)[0], _number(fields.get(KIND, NORMAL)))


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError("expected a number")
    return value


def _fields(data: object) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, in order: numbers, or bytes of texts, messages and floats."""
    if not isinstance(data, bytes):
        raise ValueError("expected a message")
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        field, wire = key >> 3, key & 7
        if wire == 0:
            number, place = _varint(data, place)
            yield field, number
            continue
        size = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            size, place = _varint(data, place)
        if size is None or place + size > len(data):
            raise ValueError("it is cut off or of another kind")
        yield field, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the place behind it."""
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


END = "</w>"
UNKNOWN_TOKEN = "<unk>"


def build_tokenizer(
    pipeline: Pipeline,
    cut: Sequence[str],
    ids: Mapping[str, int],
    spelling: Spelling,
    roles: Mapping[str, int],
    size: int,
    prefix: Sequence[int] = (),
) -> ImportedTokenizer:
    """A tokenizer whose pipeline gives the pieces `cut` by its own ids, and whose model knows them by `ids`."""
    pieces = [""] * size
    for piece, index in ids.items():
        if not 0 <= index < size:
            raise InteropError(f"the piece {piece!r} has the id {index}, but the model has {size:,} pieces")
        pieces[index] = piece
    tags = {index for piece, index in ids.items() if piece.startswith(">>") and piece.endswith("<<")}
    specials = {*roles.values()} | tags | {index for index, piece in enumerate(pieces) if not piece}
    known = {piece: index for piece, index in ids.items() if index not in specials}  # text never becomes special
    vocabulary = ImportedVocabulary(
        size=size,
        spelling=spelling,
        pad=roles["pad"],
        unk=roles["unk"],
        bos=roles["bos"],
        eos=roles["eos"],
        specials=tuple(sorted(specials)),
        pieces=tuple(pieces),
        ids=tuple(known.get(piece, roles["unk"]) for piece in cut),
        prefix=tuple(prefix),
    )
    return ImportedTokenizer(pipeline, vocabulary)


def sentencepiece_tokenizer(
    path: Path, ids: Mapping[str, int], roles: Mapping[str, int], size: int
) -> ImportedTokenizer:
    """One side: the pieces of a .model file, numbered by a vocabulary."""
    pipeline, cut = SentencePieceModel.read(path).pipeline()
    return build_tokenizer(pipeline, cut, ids, "metaspace", roles, size)


def self_contained_sentencepiece_tokenizer(
    path: Path, size: int, extra: Sequence[str], roles: Mapping[str, str]
) -> ImportedTokenizer:
    """A .model file whose own places are the ids, with further special pieces behind them."""
    model = SentencePieceModel.read(path)
    names = [*(piece.name for piece in model.pieces), *extra]
    ids = {name: index for index, name in enumerate(names)}
    missing = [name for name in roles.values() if name not in ids]
    if missing:
        raise InteropError(f"{path} has no piece {', '.join(missing)}")
    side = sentencepiece_tokenizer(path, ids, {role: ids[name] for role, name in roles.items()}, size)
    specials = {*side.vocabulary.specials, *(ids[name] for name in extra)}
    vocabulary = side.vocabulary.model_copy(update={"specials": tuple(sorted(specials))})
    return ImportedTokenizer(model.pipeline()[0], vocabulary)


def bpe_pipeline(path: Path, pieces: Sequence[str]) -> tuple[Pipeline, list[str]]:
    """What cuts words by the codes of subword-nmt or fastBPE, and its pieces with @@ at those that go on."""
    merges = _read_codes(path)
    symbols: dict[str, None] = {UNKNOWN_TOKEN: None}
    letters = {letter for pair in merges for side in pair for letter in side.removesuffix(END)}
    letters |= {letter for piece in pieces for letter in piece.removesuffix(JOINER)}
    for letter in sorted(letters):
        symbols |= {letter: None, letter + END: None}
    for left, right in merges:
        symbols |= {left: None, right: None, left + right: None}
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    pipeline = Pipeline(models.BPE(vocabulary, merges, unk_token=UNKNOWN_TOKEN, end_of_word_suffix=END))
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    cut = [symbol.removesuffix(END) if symbol.endswith(END) else symbol + JOINER for symbol in symbols]
    return pipeline, [UNKNOWN_TOKEN, *cut[1:]]


def _read_codes(path: Path) -> list[tuple[str, str]]:
    """Pairs in the order in which they are merged; the last letter of a word carries its end."""
    lines = read_lines(path)
    if lines and lines[0].startswith("#version:"):
        version = lines.pop(0).removeprefix("#version:").strip()
        if version != "0.2":
            raise InteropError(f"BPE codes of version {version} are not supported, only 0.2; found in {path}")
    pairs = [line.split(" ") for line in lines if line.strip()]
    if not pairs or not all(len(pair) in (2, 3) for pair in pairs):
        raise InteropError(f"{path} holds no BPE codes; expected two symbols a line, as subword-nmt and fastBPE write")
    if any(END in pair[:2] for pair in pairs):
        raise InteropError(f"BPE codes of version 0.1, in which {END} stands alone, are not supported; found in {path}")
    return list(dict.fromkeys((pair[0], pair[1]) for pair in pairs))


def words_pipeline(pieces: Sequence[str]) -> tuple[Pipeline, list[str]]:
    """Words between spaces, each a piece."""
    cut = list(dict.fromkeys([UNKNOWN_TOKEN, *pieces]))
    pipeline = Pipeline(models.WordLevel({piece: index for index, piece in enumerate(cut)}, unk_token=UNKNOWN_TOKEN))
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return pipeline, cut


def read_lines(path: Path) -> list[str]:
    """The lines of a text file."""
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InteropError(f"cannot read {path}: {error}") from error
