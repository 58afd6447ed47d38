"""Texts as the token ids that a model reads, and generated token ids as text: one codec per kind of task.

Inspection uses the codec of a model's task too, so that it sees the same ids as the task's own command.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from clearhead.config import Config
from clearhead.data.readers.documents import Document
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import DataError
from clearhead.tasks.denoising.span_corruption import decode_with_sentinels, encode_with_sentinels
from clearhead.tasks.masked_lm.mask_tokens import encode_with_masks

SPECIAL_TOKENS = 2  # <s> and </s> around a text that an encoder reads
DOCUMENTS_PER_BLOCK = 1024  # documents that are tokenized at a time


class TextCodec:
    """text </s>: the input of models that generate another text."""

    def encode(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each source or target text, without special tokens."""
        return tokenizer.encode_batch(texts)

    def add_special_tokens(self, tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
        """Return the ids as the network reads them."""
        return [*ids, tokenizer.eos_id]

    def detokenize(self, tokenizer: Tokenizer, ids: Sequence[int]) -> str:
        """Return the text of generated ids."""
        return tokenizer.decode(ids)


class EncoderCodec(TextCodec):
    """<s> text </s>: the input of encoders. The first position can represent the whole text, as BERT's [CLS] does."""

    def add_special_tokens(self, tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
        """Return the ids as the network reads them."""
        return [tokenizer.bos_id, *ids, tokenizer.eos_id]


class MaskedCodec(EncoderCodec):
    """Text for masked language models, with [MASK] or <mask> for masked tokens."""

    def encode(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without special tokens except masks."""
        return [encode_with_masks(tokenizer, text) for text in texts]


class SentinelCodec(TextCodec):
    """Text in which sentinels such as <x0> mark missing spans."""

    def encode(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without special tokens except sentinels."""
        return [encode_with_sentinels(tokenizer, text) for text in texts]

    def detokenize(self, tokenizer: Tokenizer, ids: Sequence[int]) -> str:
        """Return the text of generated ids, with the sentinels."""
        return decode_with_sentinels(tokenizer, ids)


class PromptCodec(TextCodec):
    """<s> text: prompts begin as documents do, and have no end."""

    def add_special_tokens(self, tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
        """Return the ids as the network reads them."""
        return [tokenizer.bos_id, *ids]


def encode_documents(documents: Sequence[Document], tokenizer: Tokenizer) -> Iterator[tuple[Document, list[int]]]:
    """Yield each document with its ids; the ids of a large text are in memory for one block at a time."""
    left = iter(documents)
    while block := list(islice(left, DOCUMENTS_PER_BLOCK)):
        yield from zip(block, tokenizer.encode_batch([document.text for document in block]), strict=True)


def max_input_tokens(config: Config) -> int:
    """Return how many tokens a trained model accepts: with learned positions at most as many as in training."""
    limit = config.model.max_positions
    return min(limit, config.data.max_tokens) if config.model.positions == "learned" else limit


def check_length(number: int, length: int, limit: int, what: str = "line") -> None:
    """Raise DataError if a text has more tokens than the model accepts."""
    if length > limit:
        raise DataError(f"{what} {number} has {length:,} tokens, the model accepts {limit:,}; split it")
