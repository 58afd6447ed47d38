"""Text to token ids and back.

    tokenizer     `Tokenizer`: trains, encodes, decodes, and is saved as one JSON file
    training      construction of the pipeline of each kind and training of its vocabulary
    imported      `ImportedTokenizer`: the tokenizer of a model of another toolkit
    bpe_dropout   random tokenizations of a text, for training
    word_indices  the word that each token belongs to

Built on the library `tokenizers`. Imports `config` and `errors` only.
"""

from clearhead.config import SPECIAL_TOKENS, TokenizerConfig
from clearhead.data.tokenizer.tokenizer import TokenizedText, Tokenizer, tag_token

__all__ = ["SPECIAL_TOKENS", "TokenizedText", "Tokenizer", "TokenizerConfig", "tag_token"]
