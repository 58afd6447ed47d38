"""The tokenizer as the rest of the toolkit sees it; how it is learned stands in `training`."""

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from pydantic import ValidationError
from tokenizers import Tokenizer as Pipeline

from clearhead.config import BYTE_FORM, TokenizerConfig
from clearhead.data.tokenizer.training import BYTE_TOKENS, CONTINUATION, require_encodable, train_pipeline
from clearhead.data.tokenizer.word_indices import NO_WORD, word_indices
from clearhead.errors import TokenizerError

FORMAT_VERSION = 1
SPACE_MARK = "▁"
MASK_TOKEN = "<mask>"


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A text as pieces; the three lists have the same length."""

    ids: list[int]
    tokens: list[str]
    """What to show: a space is "▁", a byte is "<0xC3>"."""
    offsets: list[tuple[int, int]]
    """Where each piece stands in the text as it was given, without the space before it."""


class Tokenizer:
    """Cuts text into the pieces of a learned vocabulary and puts it together again.

    For bpe and unigram `decode(encode(text).ids) == normalise(text)` for every text. For the other kinds it holds for
    texts whose pieces are known: wordpiece and word keep spaces in front of the words, so there are no rules about
    punctuation; pretokenized text must have single spaces between its tokens. Unknown pieces are left out by `decode`.
    """

    pad_id: int = 0
    unk_id: int = 1
    bos_id: int = 2
    eos_id: int = 3

    def __init__(self, pipeline: Pipeline, config: TokenizerConfig) -> None:
        self.config = config
        self.tag = ""
        """What stands before every source, one piece such as <de>; nothing: none."""
        self._untagged = self
        self._pipeline = pipeline
        vocabulary = pipeline.get_vocab(with_added_tokens=False)
        self._raw = sorted(vocabulary, key=vocabulary.__getitem__)
        _check_vocabulary(vocabulary, self._raw, config)
        self._num_specials = len(config.all_special_tokens)
        self._surfaces = [self._surface(index, raw) for index, raw in enumerate(self._raw)]
        self._shown = [self._show(index, raw) for index, raw in enumerate(self._raw)]

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> Self:
        """Learn a vocabulary; the same texts in the same order give the same tokenizer, byte for byte."""
        return cls(train_pipeline(texts, config), config)

    @property
    def vocab_size(self) -> int:
        return len(self._raw)

    @property
    def special_ids(self) -> Sequence[int]:
        """The ids that stand for no text, in order."""
        return range(self._num_specials)

    @property
    def mask_id(self) -> int | None:
        """The piece that hides another, if there is one."""
        specials = self.config.all_special_tokens
        return specials.index(MASK_TOKEN) if MASK_TOKEN in specials else None

    @property
    def target(self) -> "Tokenizer":
        """The tokenizer of what is written: another one where source and target have vocabularies of their own, and
        where sources have a tag."""
        return self._untagged

    def tag_id(self, tag: str) -> int:
        """The piece of a tag."""
        piece = tag_token(tag)
        if piece not in self.config.special_tokens:
            raise TokenizerError(f"the vocabulary has no tag {tag}; it has {_tag_names(self.config)}")
        return self.config.all_special_tokens.index(piece)

    def with_tag(self, tag: str) -> "Tokenizer":
        """This tokenizer with a tag before every source."""
        self.tag_id(tag)
        found = copy.copy(self)
        found.tag, found._untagged = tag, self._untagged
        return found

    @property
    def prefix_ids(self) -> list[int]:
        """The pieces that stand before every source."""
        return [self.tag_id(self.tag)] if self.tag else []

    def encode_masked(self, text: str) -> list[int] | None:
        """The ids of a text in which <mask> hides pieces, where the tokenizer itself can read that; else none."""
        return None

    def token(self, index: int) -> str:
        """A piece as people see it; no two are shown alike."""
        return self._shown[index]

    def token_bytes(self, index: int) -> bytes:
        """The bytes that a piece adds to the text; none for a special token."""
        return self._surfaces[index]

    def token_id(self, piece: str) -> int | None:
        """The id of a piece in the form that `piece` gives it, or none."""
        return self._ids_of_shown.get(piece)

    def normalize(self, text: str) -> str:
        """The text that decoding gives back; normalising it again changes nothing."""
        text = self._pipeline.normalizer.normalize_str(require_encodable(text))  # from the file, not from today's code
        return text if self.config.kind == "char" else text.removeprefix(" ")

    def encode(self, text: str) -> TokenizedText:
        """Cut a text into pieces, without special tokens."""
        found = self._pipeline.encode(require_encodable(text), add_special_tokens=False)
        ids = [*self.prefix_ids, *found.ids] if found.ids else []
        places = [(0, 0)] * (len(ids) - len(found.ids)) + trim_offsets(text, found.offsets)
        return TokenizedText(ids, [self._shown[index] for index in ids], places)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, on all cores."""
        found = self._pipeline.encode_batch_fast([require_encodable(text) for text in texts], add_special_tokens=False)
        if prefix := self.prefix_ids:
            return [[*prefix, *encoding.ids] if encoding.ids else [] for encoding in found]
        return [encoding.ids for encoding in found]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids; special tokens are left out, bytes that are no UTF-8 become U+FFFD."""
        text = self.decode_tokens(ids)
        joiner = self.config.joiner
        return text.replace(f"{joiner} ", "").removesuffix(joiner) if joiner else text

    def decode_batch(self, batch: Iterable[Sequence[int]]) -> list[str]:
        return [self.decode(ids) for ids in batch]

    def decode_tokens(self, ids: Sequence[int]) -> str:
        """As `decode`, but pretokenized text stays split: "un@@ related" and not "unrelated"."""
        text = b"".join([self._surfaces[index] for index in ids]).decode("utf-8", "replace")
        return text if self.config.kind == "char" else text.removeprefix(" ")

    def word_indices(self, ids: Sequence[int]) -> list[int]:
        """The index of the word that each piece belongs to, counted from 0; -1 for special tokens.

        A word is a run of letters and digits, or of one punctuation mark; in pretokenized text, what the joiner joins.
        An unknown piece is a word of its own, or a letter for char.
        """
        if self.config.kind == "pretokenized":
            return self._joined_words(ids)
        unknown = b"x" if self.config.kind == "char" else " \ufffd".encode()
        return word_indices([unknown if index == self.unk_id else self._surfaces[index] for index in ids])

    def merges(self) -> tuple[dict[str, int], list[tuple[str, str]]]:
        """Every piece with its id, and the pairs of pieces that bpe joins, in the order in which they were learned."""
        model = json.loads(self._pipeline.to_str())["model"]
        return model["vocab"], [(first, second) for first, second in model["merges"]]

    def split_words(self, text: str) -> list[str]:
        """A normalised text in the parts that pieces never cross."""
        return [word for word, _ in self._pipeline.pre_tokenizer.pre_tokenize_str(text)]

    def to_json(self) -> str:
        """The whole tokenizer as one JSON text; `tokenizer` in it is a file of the `tokenizers` library."""
        own = {"version": FORMAT_VERSION, "config": self.config.model_dump(mode="json")}
        return json.dumps({"clearhead": own, "tokenizer": json.loads(self._pipeline.to_str())}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """The tokenizer that `to_json` wrote."""
        try:
            state = json.loads(text)
            own, inner = state["clearhead"], state["tokenizer"]
            version, fields = own["version"], own["config"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise damaged_file_error(f"it is no JSON with clearhead and tokenizer in it ({error!r})") from error
        if version != FORMAT_VERSION:
            problem = f"the tokenizer has format version {version!r}, expected {FORMAT_VERSION}"
            raise TokenizerError(f"{problem}; use the release of clearhead that wrote it, or train it again")
        try:
            config = TokenizerConfig.model_validate(fields)
        except ValidationError as error:
            raise damaged_file_error(f"its settings do not hold: {error.errors()[0]['msg']}") from error
        if config.kind == "imported":
            from clearhead.data.tokenizer.imported import ImportedTokenizer  # which builds on this class

            return ImportedTokenizer.from_state(state, config)
        return cls(_load_pipeline(inner), config)

    @cached_property
    def _ids_of_shown(self) -> dict[str, int]:
        return {shown: index for index, shown in enumerate(self._shown)}

    def _surface(self, index: int, raw: str) -> bytes:
        """The bytes that a piece adds to the text."""
        if index < self._num_specials:
            return b""
        if self.config.has_bytes and BYTE_FORM.fullmatch(raw):
            return bytes([int(raw[3:5], 16)])
        if self.config.kind == "wordpiece":
            raw = raw.removeprefix(CONTINUATION)
        return raw.encode()

    def _show(self, index: int, raw: str) -> str:
        if index < self._num_specials:
            return raw
        if self.config.kind == "pretokenized":
            return raw.removeprefix(" ")
        return raw.replace(SPACE_MARK, "\\u2581").replace(" ", SPACE_MARK)

    def _joined_words(self, ids: Sequence[int]) -> list[int]:
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
    """The offsets without the space before a piece and with the marks composed into it.

    The library gives the place of "e" alone for "e" and a combining accent that became "é". Nothing but white space
    is ever taken out of a text, so what lies between two pieces and is no white space belongs to the first.
    """
    tidied: list[tuple[int, int]] = []
    following = reach = len(text)
    for start, end in reversed(offsets):
        if end <= following:
            reach = end + (0 if text[end : end + 1].isspace() else len(text[end:following].rstrip()))
        following = start
        while start < end and text[start].isspace():
            start += 1
        tidied.append((start, reach))
    return tidied[::-1]


def tag_token(tag: str) -> str:
    """The special piece that stands for a tag."""
    return f"<{tag}>"


def _tag_names(config: TokenizerConfig) -> str:
    return ", ".join(special[1:-1] for special in config.special_tokens) or "none"


def damaged_file_error(problem: str) -> TokenizerError:
    return TokenizerError(f"the tokenizer file is damaged: {problem}; restore it or train the tokenizer again")


def _load_pipeline(state: Any) -> Pipeline:
    if not isinstance(state, dict) or state.get("added_tokens") != []:
        raise damaged_file_error("its pipeline must be an object without added tokens")
    if not all(state.get(part) for part in ("normalizer", "pre_tokenizer", "model")):
        raise damaged_file_error("its pipeline must have a normalizer, a pre_tokenizer and a model")
    try:
        return Pipeline.from_str(json.dumps(state))
    except Exception as error:  # the library raises bare Exception
        raise damaged_file_error(f"its pipeline cannot be read ({error})") from error


def _check_vocabulary(vocabulary: dict[str, int], raw: list[str], config: TokenizerConfig) -> None:
    """Refuse a vocabulary on which the rest of the class could not rely."""
    if sorted(vocabulary.values()) != list(range(len(raw))):
        raise damaged_file_error("the ids of its vocabulary are not 0, 1, 2 and so on")
    if tuple(raw[: len(config.all_special_tokens)]) != config.all_special_tokens:
        raise damaged_file_error(f"its vocabulary must begin with {' '.join(config.all_special_tokens)}")
    if config.has_bytes and not all(piece in vocabulary for piece in BYTE_TOKENS):
        raise damaged_file_error("its vocabulary must hold all 256 bytes")
