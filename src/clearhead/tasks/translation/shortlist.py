"""A shortlist for a model, made from pairs of texts."""

from collections.abc import Sequence
from hashlib import sha256

from clearhead.data.readers.pairs import Pair
from clearhead.data.shortlist import BEST, FREQUENT, Shortlist, make_shortlist
from clearhead.data.tokenizer import Tokenizer
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import LoadedModel


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str:
    """Equal for equal tokenizers."""
    return sha256(tokenizer.to_json().encode()).hexdigest()


def learn_shortlist(model: LoadedModel, pairs: Sequence[Pair], best: int = BEST, frequent: int = FREQUENT) -> Shortlist:
    """The `best` likeliest target pieces of each source piece, and the `frequent` ones that every sentence gets."""
    pieces, source, target = get_task(model.config.task).codec.encode, model.tokenizer, model.tokenizer.target
    return make_shortlist(
        pieces(source, [pair.source for pair in pairs]),
        pieces(target, [pair.target for pair in pairs]),
        (source.vocab_size, target.vocab_size),
        [target.eos_id],
        tokenizer_fingerprint(source),
        best,
        frequent,
        copies=_shared(source, target),
    )


def _shared(source: Tokenizer, target: Tokenizer) -> list[int]:
    """The pieces of text that both sides have under one id, where they have one vocabulary."""
    if [*map(source.piece, range(source.vocab_size))] != [*map(target.piece, range(target.vocab_size))]:
        return []
    return [index for index in range(source.vocab_size) if source.surface(index)]
