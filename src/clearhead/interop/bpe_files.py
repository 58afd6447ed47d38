"""Tokenizers that come in parts: what cuts text (a SentencePiece model, BPE codes), and what numbers the pieces."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer as Pipeline
from tokenizers import models, pre_tokenizers

from clearhead.data.tokenizer.imported import JOINER, ImportedTokenizer, ImportedVocabulary, WordBoundary
from clearhead.errors import InteropError
from clearhead.interop.sentencepiece import SentencePieceModel

END = "</w>"
UNKNOWN = "<unk>"


def numbered(
    pipeline: Pipeline,
    cut: Sequence[str],
    ids: Mapping[str, int],
    spelling: WordBoundary,
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


def sentencepiece_side(path: Path, ids: Mapping[str, int], roles: Mapping[str, int], size: int) -> ImportedTokenizer:
    """One side: the pieces of a .model file, numbered by a vocabulary."""
    pipeline, cut = SentencePieceModel.read(path).pipeline()
    return numbered(pipeline, cut, ids, "metaspace", roles, size)


def sentencepiece_alone(path: Path, size: int, extra: Sequence[str], roles: Mapping[str, str]) -> ImportedTokenizer:
    """A .model file whose own places are the ids, with further special pieces behind them."""
    model = SentencePieceModel.read(path)
    names = [*(piece.name for piece in model.pieces), *extra]
    ids = {name: index for index, name in enumerate(names)}
    missing = [name for name in roles.values() if name not in ids]
    if missing:
        raise InteropError(f"{path} has no piece {', '.join(missing)}")
    side = sentencepiece_side(path, ids, {role: ids[name] for role, name in roles.items()}, size)
    specials = {*side.vocabulary.specials, *(ids[name] for name in extra)}
    vocabulary = side.vocabulary.model_copy(update={"specials": tuple(sorted(specials))})
    return ImportedTokenizer(model.pipeline()[0], vocabulary)


def bpe_pipeline(path: Path, pieces: Sequence[str]) -> tuple[Pipeline, list[str]]:
    """What cuts words by the codes of subword-nmt or fastBPE, and its pieces with @@ at those that go on."""
    merges = _read_codes(path)
    symbols: dict[str, None] = {UNKNOWN: None}
    letters = {letter for pair in merges for side in pair for letter in side.removesuffix(END)}
    letters |= {letter for piece in pieces for letter in piece.removesuffix(JOINER)}
    for letter in sorted(letters):
        symbols |= {letter: None, letter + END: None}
    for left, right in merges:
        symbols |= {left: None, right: None, left + right: None}
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    pipeline = Pipeline(models.BPE(vocabulary, merges, unk_token=UNKNOWN, end_of_word_suffix=END))
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    cut = [symbol.removesuffix(END) if symbol.endswith(END) else symbol + JOINER for symbol in symbols]
    return pipeline, [UNKNOWN, *cut[1:]]


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
    cut = list(dict.fromkeys([UNKNOWN, *pieces]))
    pipeline = Pipeline(models.WordLevel({piece: index for index, piece in enumerate(cut)}, unk_token=UNKNOWN))
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return pipeline, cut


def read_lines(path: Path) -> list[str]:
    """The lines of a text file."""
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InteropError(f"cannot read {path}: {error}") from error
