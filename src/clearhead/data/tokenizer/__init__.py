"""Text to token ids and back: `Tokenizer` trains, encodes, decodes and is one JSON file."""

from clearhead.config import SPECIALS, TokenizerConfig
from clearhead.data.tokenizer.tokenizer import Encoding, Tokenizer, tag_piece

__all__ = ["SPECIALS", "Encoding", "Tokenizer", "TokenizerConfig", "tag_piece"]
