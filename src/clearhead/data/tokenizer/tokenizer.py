"""The tokenizer: encoding, decoding, and its JSON file. `training` learns its vocabulary."""

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from pydantic import ValidationError
from tokenizers import Tokenizer as Pipeline

from clearhead.config import BYTE_TOKEN_PATTERN, TokenizerConfig
from clearhead.data.tokenizer.training import BYTE_TOKENS, CONTINUATION, train_pipeline
from clearhead.data.tokenizer.word_indices import NO_WORD, word_indices
from clearhead.errors import TokenizerError

FORMAT_VERSION = 1
SPACE_MARK = "▁"
MASK_TOKEN = "<mask>"


def require_encodable(text: str) -> str:
    """Return the text unchanged; raise TokenizerError if it contains half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problem = f"expected text, found half of a surrogate pair at character {error.start + 1}"
        raise TokenizerError(f"{problem}; read the text as UTF-8") from error
    return text


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """The tokens of a text; the three lists have the same length."""

    ids: list[int]
    tokens: list[str]
    """The displayed form of each token: a space is "▁", a byte "<0xC3>"."""
    offsets: list[tuple[int, int]]
    """Start and end of each token in the original text, without the space before it."""


class Tokenizer:
    """Converts text to token ids of a learned vocabulary and back.

    For bpe and unigram, `decode(encode(text).ids) == normalize(text)` for every text. For the other kinds this holds if
    all tokens are known: wordpiece and word keep the spaces in front of words and need no rules about punctuation, and
    pretokenized text must have single spaces between its tokens. `decode` omits unknown tokens.
    """

    pad_id: int = 0
    unk_id: int = 1
    bos_id: int = 2
    eos_id: int = 3

    def __init__(self, pipeline: Pipeline, config: TokenizerConfig) -> None:
        self.config = config
        self.tag = ""
        """Tag before every source, such as `de` for the token <de>; empty: none."""
        self._untagged = self
        self._pipeline = pipeline
        vocabulary = pipeline.get_vocab(with_added_tokens=False)
        self._raw = sorted(vocabulary, key=vocabulary.__getitem__)
        _check_vocabulary(vocabulary, self._raw, config)
        self._num_specials = len(config.all_special_tokens)
        self._token_bytes = [self._to_bytes(index, raw) for index, raw in enumerate(self._raw)]
        self._display_forms = [self._display_form(index, raw) for index, raw in enumerate(self._raw)]

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> Self:
        """Return a tokenizer learned from texts; equal texts in equal order give the same tokenizer, byte for byte."""
        return cls(train_pipeline(map(require_encodable, texts), config), config)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, including special tokens."""
        return len(self._raw)

    @property
    def special_ids(self) -> Sequence[int]:
        """The ids of special tokens, which represent no text, in ascending order."""
        return range(self._num_specials)

    @property
    def mask_id(self) -> int | None:
        """Id of the mask token; None if the vocabulary has none."""
        specials = self.config.all_special_tokens
        return specials.index(MASK_TOKEN) if MASK_TOKEN in specials else None

    @property
    def target(self) -> "Tokenizer":
        """The tokenizer of the target: a different one if the vocabularies are separate or sources have a tag."""
        return self._untagged

    def tag_id(self, tag: str) -> int:
        """Return the id of a tag; raise TokenizerError if the vocabulary does not contain it."""
        token = tag_token(tag)
        if token not in self.config.special_tokens:
            raise TokenizerError(f"the vocabulary has no tag {tag}; it has {_tag_names(self.config)}")
        return self.config.all_special_tokens.index(token)

    def with_tag(self, tag: str) -> "Tokenizer":
        """Return this tokenizer with a tag before every source."""
        self.tag_id(tag)
        tagged = copy.copy(self)
        tagged.tag, tagged._untagged = tag, self._untagged
        return tagged

    @property
    def prefix_ids(self) -> list[int]:
        """Token ids before every source."""
        return [self.tag_id(self.tag)] if self.tag else []

    def encode_masked(self, text: str) -> list[int] | None:
        """Return the ids of a text that contains <mask>; None if this tokenizer does not support masks in texts."""
        return None

    def token(self, index: int) -> str:
        """Return the displayed form of a token, which is unique."""
        return self._display_forms[index]

    def token_bytes(self, index: int) -> bytes:
        """Return the bytes that a token adds to the text; empty for a special token."""
        return self._token_bytes[index]

    def token_id(self, token: str) -> int | None:
        """Return the id of a token in its displayed form; None if there is none."""
        return self._ids_by_display_form.get(token)

    def normalize(self, text: str) -> str:
        """Return the text as decoding would return it; normalizing it again changes nothing."""
        # The saved normalizer is used, so that later versions of the code give the same result.
        text = self._pipeline.normalizer.normalize_str(require_encodable(text))
        return text if self.config.kind == "char" else text.removeprefix(" ")

    def encode(self, text: str) -> TokenizedText:
        """Return the tokens of a text, without special tokens."""
        encoding = self._pipeline.encode(require_encodable(text), add_special_tokens=False)
        ids = [*self.prefix_ids, *encoding.ids] if encoding.ids else []
        offsets = [(0, 0)] * (len(ids) - len(encoding.ids)) + trim_offsets(text, encoding.offsets)
        return TokenizedText(ids, [self._display_forms[index] for index in ids], offsets)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts, computed on all cores."""
        encodings = self._pipeline.encode_batch_fast(
            [require_encodable(text) for text in texts], add_special_tokens=False
        )
        if prefix := self.prefix_ids:
            return [[*prefix, *encoding.ids] if encoding.ids else [] for encoding in encodings]
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids; special tokens are omitted, and invalid UTF-8 becomes U+FFFD."""
        text = self.decode_tokens(ids)
        joiner = self.config.joiner
        return text.replace(f"{joiner} ", "").removesuffix(joiner) if joiner else text

    def decode_batch(self, batch: Iterable[Sequence[int]]) -> list[str]:
        """Return the texts of several sequences of ids."""
        return [self.decode(ids) for ids in batch]

    def decode_tokens(self, ids: Sequence[int]) -> str:
        """Decode without joining the tokens of pretokenized text: "un@@ related" instead of "unrelated"."""
        text = b"".join([self._token_bytes[index] for index in ids]).decode("utf-8", "replace")
        return text if self.config.kind == "char" else text.removeprefix(" ")

    def word_indices(self, ids: Sequence[int]) -> list[int]:
        """Return the index of the word that each token belongs to, from 0; -1 for special tokens.

        A word is a run of letters and digits or of one punctuation mark; in pretokenized text, the tokens connected by
        the joiner. An unknown token counts as one word, and for kind char as one letter.
        """
        if self.config.kind == "pretokenized":
            return self._joined_words(ids)
        unknown = b"x" if self.config.kind == "char" else " \ufffd".encode()
        return word_indices([unknown if index == self.unk_id else self._token_bytes[index] for index in ids])

    def merges(self) -> tuple[dict[str, int], list[tuple[str, str]]]:
        """Return the vocabulary of a bpe tokenizer with ids, and its merges in the order in which they were learned."""
        model = json.loads(self._pipeline.to_str())["model"]
        return model["vocab"], [(first, second) for first, second in model["merges"]]

    def split_words(self, text: str) -> list[str]:
        """Return the parts of a normalized text that tokens never span."""
        return [word for word, _ in self._pipeline.pre_tokenizer.pre_tokenize_str(text)]

    def to_json(self) -> str:
        """Return the tokenizer as JSON; its key `tokenizer` contains a file of the library `tokenizers`."""
        header = {"version": FORMAT_VERSION, "config": self.config.model_dump(mode="json")}
        return json.dumps({"clearhead": header, "tokenizer": json.loads(self._pipeline.to_str())}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """Return the tokenizer of a JSON text; raise TokenizerError if it is damaged or of another version."""
        try:
            state = json.loads(text)
            header, pipeline_state = state["clearhead"], state["tokenizer"]
            version, fields = header["version"], header["config"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise damaged_file_error(f"it is not JSON with the keys clearhead and tokenizer ({error!r})") from error
        if version != FORMAT_VERSION:
            problem = f"the tokenizer has format version {version!r}, expected {FORMAT_VERSION}"
            raise TokenizerError(f"{problem}; use the release of clearhead that wrote it, or train it again")
        try:
            config = TokenizerConfig.model_validate(fields)
        except ValidationError as error:
            raise damaged_file_error(f"its settings are invalid: {error.errors()[0]['msg']}") from error
        if config.kind == "imported":
            from clearhead.data.tokenizer.imported import ImportedTokenizer  # a subclass of this class

            return ImportedTokenizer.from_state(state, config)
        return cls(_load_pipeline(pipeline_state), config)

    @cached_property
    def _ids_by_display_form(self) -> dict[str, int]:
        return {form: index for index, form in enumerate(self._display_forms)}

    def _to_bytes(self, index: int, raw: str) -> bytes:
        """Return the bytes that a token adds to the text."""
        if index < self._num_specials:
            return b""
        if self.config.has_bytes and BYTE_TOKEN_PATTERN.fullmatch(raw):
            return bytes([int(raw[3:5], 16)])
        if self.config.kind == "wordpiece":
            raw = raw.removeprefix(CONTINUATION)
        return raw.encode()

    def _display_form(self, index: int, raw: str) -> str:
        """Return the displayed form of a token."""
        if index < self._num_specials:
            return raw
        if self.config.kind == "pretokenized":
            return raw.removeprefix(" ")
        return raw.replace(SPACE_MARK, "\\u2581").replace(" ", SPACE_MARK)

    def _joined_words(self, ids: Sequence[int]) -> list[int]:
        """Return the word index of each token of pretokenized text."""
        words: list[int] = []
        word, is_joined = NO_WORD, False
        for index in ids:
            if index != self.unk_id and index < self._num_specials:
                words.append(NO_WORD)
                continue
            word += not is_joined
            words.append(word)
            is_joined = bool(self.config.joiner) and self._raw[index].endswith(self.config.joiner)
        return words


def trim_offsets(text: str, offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the offsets without the space before a token and including the marks composed into it.

    For "e" and a combining accent that became "é", the library returns the offsets of "e" only. Normalization removes
    nothing but white space, so other characters between two tokens belong to the first of them.
    """
    trimmed: list[tuple[int, int]] = []
    next_start = token_end = len(text)
    for start, end in reversed(offsets):
        if end <= next_start:
            token_end = end + (0 if text[end : end + 1].isspace() else len(text[end:next_start].rstrip()))
        next_start = start
        while start < end and text[start].isspace():
            start += 1
        trimmed.append((start, token_end))
    return trimmed[::-1]


def tag_token(tag: str) -> str:
    """Return the special token of a tag."""
    return f"<{tag}>"


def _tag_names(config: TokenizerConfig) -> str:
    """Return the names of the additional special tokens for a message."""
    return ", ".join(special[1:-1] for special in config.special_tokens) or "none"


def damaged_file_error(problem: str) -> TokenizerError:
    """Return the error for a damaged tokenizer file."""
    return TokenizerError(f"the tokenizer file is damaged: {problem}; restore it or train the tokenizer again")


def _load_pipeline(state: Any) -> Pipeline:
    """Return the pipeline of a tokenizer file; raise TokenizerError if it is damaged."""
    if not isinstance(state, dict) or state.get("added_tokens") != []:
        raise damaged_file_error("its pipeline must be an object without added tokens")
    if not all(state.get(part) for part in ("normalizer", "pre_tokenizer", "model")):
        raise damaged_file_error("its pipeline must have a normalizer, a pre_tokenizer and a model")
    try:
        return Pipeline.from_str(json.dumps(state))
    except Exception as error:  # the library raises bare Exception
        raise damaged_file_error(f"its pipeline cannot be read ({error})") from error


def _check_vocabulary(vocabulary: dict[str, int], raw: list[str], config: TokenizerConfig) -> None:
    """Raise TokenizerError if the ids, special tokens or byte tokens of a vocabulary are not as expected."""
    if sorted(vocabulary.values()) != list(range(len(raw))):
        raise damaged_file_error("the ids of its vocabulary are not 0, 1, 2 and so on")
    if tuple(raw[: len(config.all_special_tokens)]) != config.all_special_tokens:
        raise damaged_file_error(f"its vocabulary must begin with {' '.join(config.all_special_tokens)}")
    if config.has_bytes and not all(token in vocabulary for token in BYTE_TOKENS):
        raise damaged_file_error("its vocabulary must contain all 256 bytes")
