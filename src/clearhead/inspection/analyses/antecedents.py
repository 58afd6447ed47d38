"""Does a head find the noun that a pronoun stands for? The paper's figure on "it", measured on many sentences.

Sources and targets must be the gold ones: the grammar knows which word is which.

H heads, L layers, I words looked at, J words that look
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.errors import InspectionError
from clearhead.grammar import Pronoun
from clearhead.inspection.analyses.word_attention import word_attention
from clearhead.inspection.trace.head_ref import KINDS, HeadRef, Kind
from clearhead.inspection.trace.trace_types import Trace


@dataclass(frozen=True)
class HeadAntecedent:
    """How often one head looks from a pronoun at its antecedent more than at any other word."""

    part: HeadRef
    found: float
    """Share of the pronouns whose most attended word, other than the pronoun itself, is the antecedent."""
    share: float
    """Mean weight on the antecedent."""
    chance: float
    """What `found` would be for a head that picks among those words by lot."""
    pronouns: int


def find_antecedents(traces: Sequence[Trace], pronouns: Sequence[Pronoun]) -> list[HeadAntecedent]:
    """Every head of every kind, the one that finds most first.

    encoder: from "it" to its noun in the source; decoder: while the pronoun is written, to the noun in the target;
    cross: while it is written, to the noun in the source.
    """
    if not traces:
        raise InspectionError("expected traces of sentences with a pronoun, got none")
    found = [one for kind in KINDS if kind in traces[0].kinds for one in _of_kind(traces, pronouns, kind)]
    return sorted(found, key=lambda one: (-one.found, -one.share))


def _of_kind(traces: Sequence[Trace], pronouns: Sequence[Pronoun], kind: Kind) -> list[HeadAntecedent]:
    hits, shares, chances = [], [], []
    for trace, pronoun in zip(traces, pronouns, strict=True):
        weights_LHI = word_attention(trace, kind).weights_LHJI[:, :, _row(kind, pronoun)].copy()
        noun = pronoun.target_antecedent if kind == "decoder" else pronoun.antecedent
        shares.append(weights_LHI[:, :, noun])
        last = pronoun.target_index if kind == "decoder" else weights_LHI.shape[2]  # what is not written is not seen
        if kind == "decoder":
            choices = last
        else:
            weights_LHI[:, :, pronoun.index] = -1.0
            choices = last - 1
        hits.append(weights_LHI[:, :, :last].argmax(2) == noun)
        chances.append(1 / choices)
    found_LH, share_LH = np.mean(hits, 0), np.mean(shares, 0)
    return [
        HeadAntecedent(
            HeadRef(kind, layer, head), float(found), float(share_LH[layer, head]), float(np.mean(chances)), len(traces)
        )
        for (layer, head), found in np.ndenumerate(found_LH)
    ]


def _row(kind: Kind, pronoun: Pronoun) -> int:
    return pronoun.index if kind == "encoder" else pronoun.target_index
