"""A tokenizer that another toolkit trained: pieces keep their ids, special tokens stand wherever they stood.

The pipeline is one of the `tokenizers` library. Where its ids are not the model's (a SentencePiece model or BPE codes
beside a vocabulary file), a list translates. Text never turns into a special token.
"""

import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from tokenizers import Tokenizer as Pipeline
from tokenizers.pre_tokenizers import ByteLevel

from clearhead.config import BYTE_FORM, TokenizerConfig
from clearhead.data.tokenizer.tokenizer import (
    FORMAT_VERSION,
    MASK_TOKEN,
    SPACE_MARK,
    TokenizedText,
    Tokenizer,
    damaged_file_error,
    trim_offsets,
)
from clearhead.data.tokenizer.training import CONTINUATION, require_encodable
from clearhead.errors import TokenizerError

LANGUAGE_TAG = re.compile(r"\s*(>>[^\s<>]+<<)\s*")  # Marian's models with several target languages
JOINER = "@@"
WordBoundary = Literal["wordpiece", "bytes", "metaspace", "joiner"]


class ImportedVocabulary(BaseModel):
    """What the pipeline does not say: the roles of special pieces, and how pieces spell text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int
    """Pieces that the model has rows for; those without a name are never used."""
    spelling: WordBoundary
    """Of spaces: `##` inside words, bytes as letters, `▁` for a space, or `@@` before a piece of the same word."""
    pad: int
    unk: int | None = None
    bos: int
    eos: int
    mask: int | None = None
    specials: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()
    """Every piece by its id; none: the pipeline's own."""
    ids: tuple[int, ...] = ()
    """The id of each piece of the pipeline; none: the same."""
    prefix: tuple[int, ...] = ()
    """What stands before every text."""


class ImportedTokenizer(Tokenizer):
    """One side of a foreign tokenizer, or both where `target` is another."""

    def __init__(
        self,
        pipeline: Pipeline,
        vocabulary: ImportedVocabulary,
        config: TokenizerConfig | None = None,
        target: "ImportedTokenizer | None" = None,
    ) -> None:
        names = ("<mask>",) if vocabulary.mask is not None else ()
        self.config = config or TokenizerConfig(kind="imported", vocab_size=vocabulary.size, special_tokens=names)
        self.tag = ""
        self.vocabulary = vocabulary
        self._target = target
        self._pipeline = pipeline
        pipeline.no_truncation()
        pipeline.no_padding()
        pipeline.encode_special_tokens = True  # "[SEP]" in a text is text
        self.pad_id, self.bos_id, self.eos_id = vocabulary.pad, vocabulary.bos, vocabulary.eos
        self.unk_id = -1 if vocabulary.unk is None else vocabulary.unk  # no piece has this id
        self._raw = _token_names(pipeline, vocabulary)
        self._specials = frozenset(vocabulary.specials) | {i for i, raw in enumerate(self._raw) if raw is None}
        self._surfaces = [self._surface(index, raw or "") for index, raw in enumerate(self._raw)]
        self._shown = [self._show(index, raw or "") for index, raw in enumerate(self._raw)]

    @property
    def special_ids(self) -> Sequence[int]:
        return sorted(self._specials)

    @property
    def mask_id(self) -> int | None:
        return self.vocabulary.mask

    @property
    def pipeline(self) -> Pipeline:
        """What cuts the text."""
        return self._pipeline

    @property
    def target(self) -> Tokenizer:
        return self._target or self

    def tag_id(self, tag: str) -> int:
        raise TokenizerError(
            f"an imported tokenizer takes no tag such as {tag}; where its model knows languages, begin the text with "
            "one, such as >>fra<<"
        )

    def normalize(self, text: str) -> str:
        """The text that decoding gives back."""
        return self.decode(self.encode(text).ids)

    def encode(self, text: str) -> TokenizedText:
        tag, start = self._tag(text)
        found = self._pipeline.encode(require_encodable(text[start:]), add_special_tokens=False)
        ids = [*tag, *self._own(found.ids)]
        before = [*self.vocabulary.prefix] if ids else []
        offsets = [(first + start, last + start) for first, last in found.offsets]
        places = [(0, 0)] * len(before) + [(0, start)] * len(tag) + trim_offsets(text, offsets)
        return TokenizedText(before + ids, [self._shown[index] for index in before + ids], places)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        if any(LANGUAGE_TAG.match(text) for text in texts):
            return [self.encode(text).ids for text in texts]
        found = self._pipeline.encode_batch_fast([require_encodable(text) for text in texts], add_special_tokens=False)
        return [[*self.vocabulary.prefix, *self._own(one.ids)] if one.ids else [] for one in found]

    def encode_masked(self, text: str) -> list[int] | None:
        if self.vocabulary.mask is None:
            return None
        ids: list[int] = []
        for number, part in enumerate(text.split(MASK_TOKEN)):  # a mask parts words, so the pieces between are the same
            ids += [self.vocabulary.mask] * (number > 0)
            ids += self.encode_batch([part])[0]
        return ids

    def decode_tokens(self, ids: Sequence[int]) -> str:
        text = b"".join([self._surfaces[index] for index in ids]).decode("utf-8", "replace")
        if self.vocabulary.spelling == "joiner":
            return text.removesuffix(" ")
        return text if self.vocabulary.spelling == "bytes" else text.removeprefix(" ")

    def to_json(self) -> str:
        own = {"version": FORMAT_VERSION, "config": self.config.model_dump(mode="json")}
        return json.dumps({"clearhead": own, **self.state()}, ensure_ascii=False)

    def state(self) -> dict[str, Any]:
        """The pipeline and what it does not say, as JSON; of both sides."""
        state = {
            "vocabulary": self.vocabulary.model_dump(mode="json"),
            "tokenizer": json.loads(self._pipeline.to_str()),
        }
        return state | ({"target": self._target.state()} if self._target else {})

    @classmethod
    def from_state(cls, state: dict[str, Any], config: TokenizerConfig) -> Self:
        """What `to_json` wrote."""
        try:
            target = cls.from_state(state["target"], config) if state.get("target") else None
            vocabulary = ImportedVocabulary.model_validate(state["vocabulary"])
            pipeline = Pipeline.from_str(json.dumps(state["tokenizer"]))
        except (KeyError, TypeError, AttributeError, ValidationError) as error:
            raise damaged_file_error(f"its vocabulary cannot be read ({error})") from error
        except Exception as error:  # the library raises bare Exception
            raise damaged_file_error(f"its pipeline cannot be read ({error})") from error
        return cls(pipeline, vocabulary, config, target)

    def _own(self, ids: Sequence[int]) -> list[int]:
        """The model's ids of the pipeline's."""
        return [self.vocabulary.ids[index] for index in ids] if self.vocabulary.ids else list(ids)

    def _tag(self, text: str) -> tuple[list[int], int]:
        """The language that a text begins with, if the model knows it, and where the text itself begins."""
        found = LANGUAGE_TAG.match(text)
        if found is None or found[1] not in self._ids_of_raw:
            return [], 0
        return [self._ids_of_raw[found[1]]], found.end()

    @cached_property
    def _ids_of_raw(self) -> dict[str, int]:
        return {raw: index for index, raw in enumerate(self._raw) if raw}

    def _surface(self, index: int, raw: str) -> bytes:
        if index in self._specials or index == self.vocabulary.unk:
            return b""
        spelling = self.vocabulary.spelling
        if spelling == "bytes":
            return bytes(byte for char in raw for byte in _BYTES.get(char, char.encode()))
        if spelling == "wordpiece":
            return raw.removeprefix(CONTINUATION).encode() if raw.startswith(CONTINUATION) else f" {raw}".encode()
        if spelling == "joiner":
            return raw.removesuffix(JOINER).encode() if raw.endswith(JOINER) else f"{raw} ".encode()
        return bytes([int(raw[3:5], 16)]) if BYTE_FORM.fullmatch(raw) else raw.replace(SPACE_MARK, " ").encode()

    def _show(self, index: int, raw: str) -> str:
        if not raw:
            return f"<unused {index}>"
        if index in self._specials or index == self.vocabulary.unk or self.vocabulary.spelling == "joiner":
            return raw
        if self.vocabulary.spelling == "metaspace" and BYTE_FORM.fullmatch(raw):
            return raw  # the letter itself may be a piece of its own
        try:
            text = self._surfaces[index].decode()
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in self._surfaces[index])
        return text.replace(SPACE_MARK, "\\u2581").replace(" ", SPACE_MARK)


def _token_names(pipeline: Pipeline, vocabulary: ImportedVocabulary) -> list[Any]:
    """Every piece by its id, none where the model has a row without a piece."""
    names: list[str | None] = [None] * vocabulary.size
    pairs = enumerate(vocabulary.pieces) if vocabulary.pieces else _pipeline_tokens(pipeline)
    for index, raw in pairs:
        if not 0 <= index < vocabulary.size:
            raise damaged_file_error(
                f"the piece {raw!r} has the id {index}, but the model knows {vocabulary.size:,} pieces"
            )
        names[index] = raw
    known = [*vocabulary.specials, *vocabulary.ids, *vocabulary.prefix, vocabulary.bos, vocabulary.eos]
    known += [index for index in (vocabulary.mask, vocabulary.unk) if index is not None]
    if not all(0 <= index < vocabulary.size for index in known):
        raise damaged_file_error(f"it names ids beyond the {vocabulary.size:,} pieces of the model")
    if vocabulary.ids and len(vocabulary.ids) != pipeline.get_vocab_size():
        raise damaged_file_error("its list of ids does not fit its pipeline")
    return names


def _pipeline_tokens(pipeline: Pipeline) -> list[tuple[int, str]]:
    return [(index, piece) for piece, index in pipeline.get_vocab(with_added_tokens=True).items()]


def _byte_alphabet() -> dict[str, bytes]:
    """The letter that stands for each byte in GPT-2's vocabulary: the printable ones for themselves, others shifted."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): bytes([byte]) for byte in printable}
    letters |= {chr(256 + number): bytes([byte]) for number, byte in enumerate(rest)}
    assert set(letters) == set(ByteLevel.alphabet())
    return letters


_BYTES = _byte_alphabet()
