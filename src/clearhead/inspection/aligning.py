"""Word alignments from attention: each target word is linked to the source word that a head looks at most.

Which head aligns best differs from model to model: it is chosen by the alignment error rate against gold.

L decoder layers, H heads
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.data.aligned import AlignedPair, Links
from clearhead.data.pairs import Pair
from clearhead.errors import DataError, TaskError
from clearhead.inspection.alignment import WordAttention, align_heads, word_attention
from clearhead.inspection.sublayers import Part, sub_layers
from clearhead.inspection.tracing import given_text, trace
from clearhead.tasks.examples import most_pieces
from clearhead.tasks.task import Ready


@dataclass(frozen=True)
class ChosenHead:
    """The head that aligns best (or the mean of a layer's), and its error rate over the pairs it was chosen on."""

    head: Part
    error_rate: float
    sentences: int


@dataclass(frozen=True)
class Alignment:
    """Which words of a pair belong together."""

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    links: Links

    @property
    def pharaoh(self) -> str:
        """As in `0-0 1-2`: source word, target word, in their order."""
        return " ".join(f"{source}-{target}" for source, target in sorted(self.links))

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "alignment": [list(link) for link in sorted(self.links)],
            "source_words": list(self.source_words),
            "target_words": list(self.target_words),
        }


def align(model: Ready, pairs: Sequence[Pair], head: Part, path: Path | str) -> Iterator[Alignment]:
    """The alignment of each pair by one head; errors name the pair's line in `path`."""
    for pair in pairs:
        found = _attention(model, pair, path)
        _check(found, head)
        source, target = tuple(found.source_words), tuple(found.target_words)
        yield Alignment(source, target, found.links(head.layer, head.head))


def choose_head(model: Ready, gold: Sequence[AlignedPair], path: Path | str) -> ChosenHead:
    """The head, or the mean over a layer's heads, with the lowest alignment error rate; of equal ones the first."""
    found = []
    for one in gold:
        attention = _attention(model, one.pair, path)
        sizes = len(attention.source_words), len(attention.target_words)
        if any(source >= sizes[0] or target >= sizes[1] for source, target in one.links):
            raise DataError.at(
                path, one.pair.line, f"the alignment names words beyond the {sizes[0]} and {sizes[1]} that there are; "
                "count words and punctuation marks from 0",
            )  # fmt: skip
        found.append(attention)
    best = align_heads(found, [one.links for one in gold])[0]
    return ChosenHead(best.part, best.error_rate, len(gold))


def usual_head(model: Ready) -> Part:
    """Where there is nothing to choose by: the last layer but one, which often aligns best; or the only one."""
    layers = sum(one.name == "cross" for one in sub_layers(model.network))
    return Part("cross", max(0, layers - 2))


def _check(found: WordAttention, head: Part) -> None:
    num_layers, num_heads = found.weights_LHJI.shape[:2]
    if not (0 <= head.layer < num_layers and (head.head is None or 0 <= head.head < num_heads)):
        raise TaskError(
            f"expected a layer of 0 to {num_layers - 1} and a head of 0 to {num_heads - 1}, got {head}; choose one"
        )


def _attention(model: Ready, pair: Pair, path: Path | str) -> WordAttention:
    limit = most_pieces(model.config) - 1
    tokenizer = model.tokenizer
    longest = max(len(tokenizer.encode(pair.source).ids), len(tokenizer.target.encode(pair.target).ids))
    if longest > limit:
        raise DataError.at(path, pair.line, f"{longest:,} pieces, the model takes {limit:,}; split the line")
    try:
        return word_attention(trace(model, given_text(model, pair.source), pair.target, model.config.decoding))
    except DataError as error:
        raise DataError.at(path, pair.line, str(error)) from error
