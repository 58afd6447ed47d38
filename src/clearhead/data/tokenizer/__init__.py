"""Text to token ids and back: `Tokenizer` trains, encodes, decodes and is one JSON file."""

from clearhead.config import SPECIALS, TokenizerConfig
from clearhead.data.tokenizer.tokenizer import Encoding, Tokenizer

__all__ = ["SPECIALS", "Encoding", "Tokenizer", "TokenizerConfig"]
