"""Word alignments from attention: each target word is linked to the source word that a head looks at most.

Which head aligns best differs from model to model: it is chosen by the alignment error rate against gold.

N pairs of a batch, L decoder layers, H heads, T target length, S source length
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearhead.data.aligned import AlignedPair, Links
from clearhead.data.pairs import Pair
from clearhead.engines.torch_network import device_of, on_device
from clearhead.errors import DataError, InspectionError, TaskError
from clearhead.inspection.alignment import Spoken, WordAttention, align_heads, by_words
from clearhead.inspection.places import text_places, written_places
from clearhead.inspection.sublayers import Part, SubLayer, sub_layers
from clearhead.tasks.forced import Forced, encode_pairs, over_pairs
from clearhead.tasks.purposes import purpose
from clearhead.tasks.targets import collate
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
    _check(model, head)
    return (
        Alignment(tuple(found.source_words), tuple(found.target_words), found.links(0, head.head))
        for found in _attention(model, pairs, path, [head.layer])
    )


def choose_head(model: Ready, gold: Sequence[AlignedPair], path: Path | str) -> ChosenHead:
    """The head, or the mean over a layer's heads, with the lowest alignment error rate; of equal ones the first."""
    layers = range(len(_cross(model)))
    found = [*_attention(model, [one.pair for one in gold], path, layers)]
    for one, attention in zip(gold, found, strict=True):
        sizes = len(attention.source_words), len(attention.target_words)
        if any(source >= sizes[0] or target >= sizes[1] for source, target in one.links):
            raise DataError.at(
                path, one.pair.line, f"the alignment names words beyond the {sizes[0]} and {sizes[1]} that there are; "
                "count words and punctuation marks from 0",
            )  # fmt: skip
    best = align_heads(found, [one.links for one in gold])[0]
    return ChosenHead(best.part, best.error_rate, len(gold))


def usual_head(model: Ready) -> Part:
    """Where there is nothing to choose by: the last layer but one, which often aligns best; or the only one."""
    return Part("cross", max(0, len(_cross(model)) - 2))


def _cross(model: Ready) -> list[SubLayer]:
    """What looks from the target at the source."""
    found = [one for one in sub_layers(model.network) if one.name == "cross"]
    if not found:
        raise InspectionError("this model has no attention between source and target: there is nothing to align by")
    return found


def _check(model: Ready, head: Part) -> None:
    layers = _cross(model)
    num_heads = layers[0].num_heads
    if not (0 <= head.layer < len(layers) and (head.head is None or 0 <= head.head < num_heads)):
        raise TaskError(
            f"expected a layer of 0 to {len(layers) - 1} and a head of 0 to {num_heads - 1}, got {head}; choose one"
        )


def _attention(model: Ready, pairs: Sequence[Pair], path: Path | str, layers: Sequence[int]) -> Iterator[WordAttention]:
    """Attention between the words of each pair while the model is made to write its target, in these layers."""
    encoded = encode_pairs(model, pairs, path)
    for one in encoded:
        if not one.source or not one.target or model.tokenizer.target.unk_id in one.target:
            problem = (
                "a side has no pieces, or the target has some that the tokenizer does not know; leave the line out"
            )
            raise DataError.at(path, one.pair.line, problem)
    heads = sum(one.num_heads for one in _cross(model))
    return over_pairs(encoded, lambda batch: _forced(model, batch, layers), lambda length: length**2 * heads)


@torch.inference_mode()
def _forced(model: Ready, pairs: list[Forced], layers: Sequence[int]) -> list[WordAttention]:
    """One pass over a batch; weights_HTS of a pair are those without its padding."""
    network, tokenizer, spell = model.network, model.tokenizer, purpose(model.config.task).spell
    made = collate([one.source for one in pairs], [one.target for one in pairs], model.config.model)
    batch = on_device(made, device_of(network))
    _, state = network.start(network.encode(batch.src), 1)
    attention = network.step(batch.tgt_in_NT, state, want_attention=True).attention
    weights_NLHTS = torch.stack([attention[layer].cross_RHTS for layer in layers], 1).cpu().numpy()
    found = []
    for one, weights_LHTS in zip(pairs, weights_NLHTS, strict=True):
        read, written = [*one.source, tokenizer.eos_id], [model.config.model.start_id, *one.target, tokenizer.eos_id]
        source = Spoken(text_places(tokenizer, one.pair.source, read), one.pair.source)
        places = written_places(tokenizer.target, spell, written)[1:]
        target = Spoken(places, spell(tokenizer.target, written))
        found.append(by_words(weights_LHTS[:, :, : len(places), : len(read)], target, source))
    return found
