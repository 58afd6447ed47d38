"""What search tells someone who watches: every candidate, where it came from, and what became of it."""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from clearhead.config import DecodingConfig
from clearhead.decoding.beams import Beams, Decision
from clearhead.decoding.candidates import Bools, Candidates
from clearhead.decoding.layout import Layout
from clearhead.decoding.scoring import divisor

Fate = Literal["kept", "finished", "length", "outside_beam", "end_outside_beam", "stopped"]
"""kept: goes on. finished: wrote the end token. length: reached the limit. outside_beam: enough others are better.
end_outside_beam: would end, but is not among the best `beam` of its step. stopped: would have gone on, but the search
for its sentence was over."""

ROOT = -1
"""The parent of first tokens."""


@dataclass(frozen=True)
class Candidate:
    """One possible next token of one hypothesis: a node of the tree that search walks."""

    sentence: int
    """Which sentence of the batch."""
    node: int
    """Number of this candidate, unique within the sentence."""
    parent: int
    """Node that it continues, or ROOT."""
    place: int
    """Where in the output the token stands, from 0."""
    token: int
    log_prob: float
    """Of this token alone."""
    total: float
    """Of the whole hypothesis up to and with this token; the candidates of a step are ranked by it."""
    score: float
    """`total` normalised, as if the hypothesis ended here."""
    fate: Fate


class Observer(Protocol):
    """Someone who watches."""

    def see(self, candidate: Candidate, /) -> None:
        """Told the best 2 * beam + 1 candidates of every step of every search of every sentence, best first."""


class Narrator:
    """Tells an observer what search decides, and numbers the nodes of each sentence's tree."""

    def __init__(self, observer: Observer, settings: DecodingConfig, num_sentences: int, layout: Layout) -> None:
        self.observer = observer
        self.settings = settings
        self.groups = layout.groups
        self.num_nodes = [0] * num_sentences
        self.nodes_NW = np.full((num_sentences * layout.groups, layout.width), ROOT)  # of every search, going on or not

    def tell(self, beams: Beams, found: Candidates, decision: Decision, is_over_N: Bools) -> None:
        """One step."""
        here = beams.searches_N
        before_R = self.nodes_NW[here].reshape(-1)
        width = self.nodes_NW.shape[1]
        for row, search in enumerate(here.tolist()):
            sentence = search // self.groups
            nodes = self.num_nodes[sentence] + np.arange(len(found.totals_NK[row]))
            is_possible_K = found.totals_NK[row] > -np.inf
            for rank in np.flatnonzero(is_possible_K).tolist():
                total = float(found.totals_NK[row, rank])
                candidate = Candidate(
                    sentence=sentence,
                    node=int(nodes[rank]),
                    parent=int(before_R[row * width + found.parents_NK[row, rank]]),
                    place=beams.length,
                    token=int(found.tokens_NK[row, rank]),
                    log_prob=float(found.log_probs_NK[row, rank]),
                    total=total,
                    score=total / divisor(beams.length + 1, self.settings),
                    fate=_fate(decision, row, rank, bool(is_over_N[row])),
                )
                self.observer.see(candidate)
            if is_possible_K.any():
                self.nodes_NW[search] = nodes[decision.kept_NW[row]]
                self.num_nodes[sentence] += len(nodes)


def _fate(decision: Decision, row: int, rank: int, is_over: bool) -> Fate:
    """What becomes of one candidate."""
    is_end = bool(decision.is_end_NK[row, rank])
    if decision.finished_NK[row, rank]:
        return "finished" if is_end else "length"
    if is_end:
        return "end_outside_beam"
    if rank in decision.kept_NW[row]:
        return "stopped" if is_over else "kept"
    return "outside_beam"
