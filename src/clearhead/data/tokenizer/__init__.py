"""Text to token ids and back: `Tokenizer` trains, encodes, decodes and is one JSON file."""

from clearhead.config import SPECIAL_TOKENS, TokenizerConfig
from clearhead.data.tokenizer.tokenizer import TokenizedText, Tokenizer, tag_token

__all__ = ["SPECIAL_TOKENS", "TokenizedText", "Tokenizer", "TokenizerConfig", "tag_token"]
