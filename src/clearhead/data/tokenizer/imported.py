"""The tokenizer of a model of another toolkit: tokens keep their ids and special tokens.

The pipeline belongs to the library `tokenizers`. If its ids differ from the model's (a SentencePiece model or BPE codes
with a separate vocabulary file), a list maps them. Text never becomes a special token.
"""

import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from tokenizers import Tokenizer as Pipeline
from tokenizers.pre_tokenizers import ByteLevel

from clearhead.config import BYTE_TOKEN_PATTERN, TokenizerConfig
from clearhead.data.tokenizer.tokenizer import (
    FORMAT_VERSION,
    MASK_TOKEN,
    SPACE_MARK,
    TokenizedText,
    Tokenizer,
    damaged_file_error,
    require_encodable,
    trim_offsets,
)
from clearhead.data.tokenizer.training import CONTINUATION
from clearhead.errors import TokenizerError

LANGUAGE_TAG = re.compile(r"\s*(>>[^\s<>]+<<)\s*")  # in Marian's models with several target languages
JOINER = "@@"
WordBoundary = Literal["wordpiece", "bytes", "metaspace", "joiner"]


class ImportedVocabulary(BaseModel):
    """Special tokens and spelling of word boundaries, which the pipeline does not contain.

    The fields are keys of the tokenizer file of a bundle.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int
    """Number of tokens in the model's embedding; ids without a token are never used."""
    spelling: WordBoundary
    """Mark of word boundaries: `##` inside words, bytes as letters, `▁` for a space, or `@@` before a token of the same
    word."""
    pad: int
    unk: int | None = None
    bos: int
    eos: int
    mask: int | None = None
    specials: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()
    """All tokens in the order of their ids; empty: those of the pipeline."""
    ids: tuple[int, ...] = ()
    """The model's id of each token of the pipeline; empty: the same ids."""
    prefix: tuple[int, ...] = ()
    """Token ids before every text."""


class ImportedTokenizer(Tokenizer):
    """The tokenizer of an imported model; `target` is the tokenizer of the target side if it differs."""

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
        pipeline.encode_special_tokens = True  # so that "[SEP]" in a text is text
        self.pad_id, self.bos_id, self.eos_id = vocabulary.pad, vocabulary.bos, vocabulary.eos
        self.unk_id = -1 if vocabulary.unk is None else vocabulary.unk  # not the id of any token
        self._raw = _token_names(pipeline, vocabulary)
        self._specials = frozenset(vocabulary.specials) | {i for i, raw in enumerate(self._raw) if raw is None}
        self._token_bytes = [self._to_bytes(index, raw or "") for index, raw in enumerate(self._raw)]
        self._display_forms = [self._display_form(index, raw or "") for index, raw in enumerate(self._raw)]

    @property
    def special_ids(self) -> Sequence[int]:
        return sorted(self._specials)

    @property
    def mask_id(self) -> int | None:
        return self.vocabulary.mask

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that splits text into tokens."""
        return self._pipeline

    @property
    def target(self) -> Tokenizer:
        return self._target or self

    def tag_id(self, tag: str) -> int:
        raise TokenizerError(
            f"an imported tokenizer does not support tags such as {tag}; if its model has several target languages, "
            "begin the text with one, such as >>fra<<"
        )

    def normalize(self, text: str) -> str:
        """Return the text as decoding would return it."""
        return self.decode(self.encode(text).ids)

    def encode(self, text: str) -> TokenizedText:
        tag, start = self._tag(text)
        encoding = self._pipeline.encode(require_encodable(text[start:]), add_special_tokens=False)
        ids = [*tag, *self._to_model_ids(encoding.ids)]
        prefix = [*self.vocabulary.prefix] if ids else []
        text_offsets = [(first + start, last + start) for first, last in encoding.offsets]
        offsets = [(0, 0)] * len(prefix) + [(0, start)] * len(tag) + trim_offsets(text, text_offsets)
        return TokenizedText(prefix + ids, [self._display_forms[index] for index in prefix + ids], offsets)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        if any(LANGUAGE_TAG.match(text) for text in texts):
            return [self.encode(text).ids for text in texts]
        encodings = self._pipeline.encode_batch_fast(
            [require_encodable(text) for text in texts], add_special_tokens=False
        )
        prefix = self.vocabulary.prefix
        return [[*prefix, *self._to_model_ids(encoding.ids)] if encoding.ids else [] for encoding in encodings]

    def encode_masked(self, text: str) -> list[int] | None:
        if self.vocabulary.mask is None:
            return None
        ids: list[int] = []
        for number, part in enumerate(
            text.split(MASK_TOKEN)
        ):  # a mask separates words, so the tokens between masks are the same
            ids += [self.vocabulary.mask] * (number > 0)
            ids += self.encode_batch([part])[0]
        return ids

    def decode_tokens(self, ids: Sequence[int]) -> str:
        text = b"".join([self._token_bytes[index] for index in ids]).decode("utf-8", "replace")
        if self.vocabulary.spelling == "joiner":
            return text.removesuffix(" ")
        return text if self.vocabulary.spelling == "bytes" else text.removeprefix(" ")

    def to_json(self) -> str:
        header = {"version": FORMAT_VERSION, "config": self.config.model_dump(mode="json")}
        return json.dumps({"clearhead": header, **self.state()}, ensure_ascii=False)

    def state(self) -> dict[str, Any]:
        """Return vocabulary and pipeline of both sides as a JSON object."""
        state = {
            "vocabulary": self.vocabulary.model_dump(mode="json"),
            "tokenizer": json.loads(self._pipeline.to_str()),
        }
        return state | ({"target": self._target.state()} if self._target else {})

    @classmethod
    def from_state(cls, state: dict[str, Any], config: TokenizerConfig) -> Self:
        """Return the tokenizer of a parsed JSON file; raise TokenizerError if it is damaged."""
        try:
            target = cls.from_state(state["target"], config) if state.get("target") else None
            vocabulary = ImportedVocabulary.model_validate(state["vocabulary"])
            pipeline = Pipeline.from_str(json.dumps(state["tokenizer"]))
        except (KeyError, TypeError, AttributeError, ValidationError) as error:
            raise damaged_file_error(f"its vocabulary cannot be read ({error})") from error
        except Exception as error:  # the library raises bare Exception
            raise damaged_file_error(f"its pipeline cannot be read ({error})") from error
        return cls(pipeline, vocabulary, config, target)

    def _to_model_ids(self, ids: Sequence[int]) -> list[int]:
        """Return the model's ids for ids of the pipeline."""
        return [self.vocabulary.ids[index] for index in ids] if self.vocabulary.ids else list(ids)

    def _tag(self, text: str) -> tuple[list[int], int]:
        """Return the id of a known language tag at the beginning of a text, as a list, and the start of the rest."""
        match = LANGUAGE_TAG.match(text)
        if match is None or match[1] not in self._ids_by_raw_token:
            return [], 0
        return [self._ids_by_raw_token[match[1]]], match.end()

    @cached_property
    def _ids_by_raw_token(self) -> dict[str, int]:
        return {raw: index for index, raw in enumerate(self._raw) if raw}

    def _to_bytes(self, index: int, raw: str) -> bytes:
        """Return the bytes that a token adds to the text, with a space for each word boundary."""
        if index in self._specials or index == self.vocabulary.unk:
            return b""
        spelling = self.vocabulary.spelling
        if spelling == "bytes":
            return bytes(byte for char in raw for byte in _BYTES.get(char, char.encode()))
        if spelling == "wordpiece":
            return raw.removeprefix(CONTINUATION).encode() if raw.startswith(CONTINUATION) else f" {raw}".encode()
        if spelling == "joiner":
            return raw.removesuffix(JOINER).encode() if raw.endswith(JOINER) else f"{raw} ".encode()
        return (
            bytes([int(raw[3:5], 16)]) if BYTE_TOKEN_PATTERN.fullmatch(raw) else raw.replace(SPACE_MARK, " ").encode()
        )

    def _display_form(self, index: int, raw: str) -> str:
        """Return the displayed form of a token."""
        if not raw:
            return f"<unused {index}>"
        if index in self._specials or index == self.vocabulary.unk or self.vocabulary.spelling == "joiner":
            return raw
        if self.vocabulary.spelling == "metaspace" and BYTE_TOKEN_PATTERN.fullmatch(raw):
            return raw  # the character itself may be another token
        try:
            text = self._token_bytes[index].decode()
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in self._token_bytes[index])
        return text.replace(SPACE_MARK, "\\u2581").replace(" ", SPACE_MARK)


def _token_names(pipeline: Pipeline, vocabulary: ImportedVocabulary) -> list[Any]:
    """Return the token of each id, None for ids without a token; raise TokenizerError if ids are inconsistent."""
    names: list[str | None] = [None] * vocabulary.size
    pairs = enumerate(vocabulary.pieces) if vocabulary.pieces else _pipeline_tokens(pipeline)
    for index, raw in pairs:
        if not 0 <= index < vocabulary.size:
            raise damaged_file_error(
                f"the token {raw!r} has the id {index}, but the model has {vocabulary.size:,} tokens"
            )
        names[index] = raw
    used_ids = [*vocabulary.specials, *vocabulary.ids, *vocabulary.prefix, vocabulary.bos, vocabulary.eos]
    used_ids += [index for index in (vocabulary.mask, vocabulary.unk) if index is not None]
    if not all(0 <= index < vocabulary.size for index in used_ids):
        raise damaged_file_error(f"it uses ids beyond the {vocabulary.size:,} tokens of the model")
    if vocabulary.ids and len(vocabulary.ids) != pipeline.get_vocab_size():
        raise damaged_file_error("its list of ids does not have the length of its pipeline's vocabulary")
    return names


def _pipeline_tokens(pipeline: Pipeline) -> list[tuple[int, str]]:
    """Return ids and tokens of a pipeline."""
    return [(index, token) for token, index in pipeline.get_vocab(with_added_tokens=True).items()]


def _byte_alphabet() -> dict[str, bytes]:
    """Return the byte of each letter in GPT-2's vocabulary: printable bytes are themselves, others are shifted."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unprintable = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): bytes([byte]) for byte in printable}
    letters |= {chr(256 + number): bytes([byte]) for number, byte in enumerate(unprintable)}
    assert set(letters) == set(ByteLevel.alphabet())
    return letters


_BYTES = _byte_alphabet()
