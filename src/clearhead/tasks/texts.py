"""How a text becomes what a network reads, and how what it wrote becomes a text: what purposes do alike.

Those who look inside a model ask its purpose, so that they see the very ids that the purpose's own verb gives it.
"""

from collections.abc import Sequence

from clearhead.data.tokenizer import Tokenizer
from clearhead.tasks.examples import framed


class EndedText:
    """text </s>: what networks read that write another text."""

    def pieces(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without its frame; of sources as of targets."""
        return tokenizer.encode_batch(texts)

    def frame(self, tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
        """The ids as the network reads them."""
        return [*ids, tokenizer.eos_id]

    def spell(self, tokenizer: Tokenizer, ids: Sequence[int]) -> str:
        """The text of ids that a network wrote."""
        return tokenizer.decode(ids)


class FramedText(EndedText):
    """<s> text </s>: what networks read that give labels, tags or masked words."""

    def frame(self, tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
        """The ids as the network reads them."""
        return framed(tokenizer, ids)
