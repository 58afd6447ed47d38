"""Conversion between texts and the token ids of a model, and the largest number of tokens of a text.

Inspection uses the codec of a model's task too, so that it processes the same ids as the task's own command.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from clearhead.config import Config
from clearhead.data.readers.documents import Document
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import DataError

NUM_SPECIAL_TOKENS = 2  # <s> and </s> around the input text of an encoder
DOCUMENTS_PER_BLOCK = 1024  # documents tokenized per call


class TextCodec:
    """text </s>: the input of models that generate a target text from a source text."""

    def encode(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each source or target text, without special tokens."""
        return tokenizer.encode_batch(texts)

    def add_special_tokens(self, tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
        """Return the ids with the special tokens of the network's input."""
        return [*ids, tokenizer.eos_id]

    def detokenize(self, tokenizer: Tokenizer, ids: Sequence[int]) -> str:
        """Return the text of generated ids."""
        return tokenizer.decode(ids)


class EncoderCodec(TextCodec):
    """<s> text </s>: the input of encoders. The first position can represent the whole text, as BERT's [CLS] does."""

    def add_special_tokens(self, tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
        """Return the ids with the special tokens of the network's input."""
        return [tokenizer.bos_id, *ids, tokenizer.eos_id]


def encode_documents(documents: Sequence[Document], tokenizer: Tokenizer) -> Iterator[tuple[Document, list[int]]]:
    """Yield each document with its ids; only one block of documents is tokenized in memory at a time."""
    remaining = iter(documents)
    while block := list(islice(remaining, DOCUMENTS_PER_BLOCK)):
        yield from zip(block, tokenizer.encode_batch([document.text for document in block]), strict=True)


def max_training_tokens(config: Config) -> int:
    """Return the largest number of tokens of a training sequence, special tokens included."""
    return min(config.data.max_tokens, config.model.max_positions)


def max_input_tokens(config: Config) -> int:
    """Return the largest number of input tokens of a trained model; learned positions limit it to that of training."""
    return max_training_tokens(config) if config.model.positions == "learned" else config.model.max_positions


def check_length(number: int, length: int, limit: int, location: str = "line") -> None:
    """Raise DataError if a text has more than `limit` tokens; the message begins with `location` and `number`."""
    if length > limit:
        raise DataError(f"{location} {number} has {length:,} tokens, the model accepts {limit:,}; split it")
