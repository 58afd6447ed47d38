"""Observation of the search: every candidate with its parent, its score and its outcome."""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from clearhead.config import DecodingConfig
from clearhead.decoding.beam_state import BeamState, Decision
from clearhead.decoding.candidates import Candidates
from clearhead.decoding.generator import Bools
from clearhead.decoding.penalties import normalized_score

Outcome = Literal["kept", "finished", "length", "outside_beam", "end_outside_beam", "stopped"]
"""kept: continues. finished: wrote the end token. length: reached the limit. outside_beam: enough others are better.
end_outside_beam: end token, but not among the best `beam` of its step. stopped: among the best, but the search for
its sentence ended at this step."""

ROOT = -1
"""Parent of first tokens."""


@dataclass(frozen=True)
class Candidate:
    """One possible next token of one hypothesis: a node of the search tree."""

    sentence: int
    """Index in the batch."""
    node: int
    """Number of this candidate, unique within the sentence."""
    parent: int
    """Node that it continues, or ROOT."""
    position: int
    """Position of the token in the output, from 0."""
    token: int
    log_prob: float
    """Log-probability of this token."""
    total: float
    """Log-probability of the hypothesis up to this token; candidates of a step are ranked by it."""
    score: float
    """`total` divided by the length penalty, as if the hypothesis ended with this token."""
    outcome: Outcome


class Observer(Protocol):
    """Receiver of the candidates."""

    def observe(self, candidate: Candidate, /) -> None:
        """Receive one of the best 2 * beam + 1 candidates of a step of a search, best first.

        The tokens of a prefix come first, with the outcome `kept`.
        """


class TreeRecorder:
    """Reports the decisions of the search to an observer and numbers the nodes of each sentence's tree."""

    def __init__(
        self, observer: Observer, settings: DecodingConfig, num_sentences: int, groups: int, width: int
    ) -> None:
        self.observer, self.settings, self.groups = observer, settings, groups
        self.num_nodes = [0] * num_sentences
        self.nodes_NW = np.full((num_sentences * groups, width), ROOT)  # of all searches, including finished ones

    def begin(self, beams: BeamState) -> None:
        """Report the prefix of each sentence: one path that all searches of the sentence continue."""
        for sentence in range(len(self.num_nodes)):
            first, total = sentence * self.groups, np.float32(0)
            steps = zip(beams.tokens_NWT[first, 0].tolist(), beams.log_probs_NWT[first, 0], strict=True)
            for position, (token, log_prob) in enumerate(steps):
                total = total + log_prob
                score = normalized_score(float(total), position + 1, self.settings)
                parent = position - 1 if position else ROOT
                self.observer.observe(
                    Candidate(sentence, position, parent, position, token, float(log_prob), float(total), score, "kept")
                )
            if beams.length:
                self.nodes_NW[first : first + self.groups] = beams.length - 1
            self.num_nodes[sentence] = beams.length

    def record(self, beams: BeamState, candidates: Candidates, decision: Decision, is_over_N: Bools) -> None:
        """Report one step."""
        searches_N = beams.searches_N
        parents_R = self.nodes_NW[searches_N].reshape(-1)
        width = self.nodes_NW.shape[1]
        for row, search in enumerate(searches_N.tolist()):
            sentence = search // self.groups
            nodes = self.num_nodes[sentence] + np.arange(len(candidates.totals_NK[row]))
            is_possible_K = candidates.totals_NK[row] > -np.inf
            for rank in np.flatnonzero(is_possible_K).tolist():
                total = float(candidates.totals_NK[row, rank])
                candidate = Candidate(
                    sentence=sentence,
                    node=int(nodes[rank]),
                    parent=int(parents_R[row * width + candidates.parents_NK[row, rank]]),
                    position=beams.length,
                    token=int(candidates.tokens_NK[row, rank]),
                    log_prob=float(candidates.log_probs_NK[row, rank]),
                    total=total,
                    score=normalized_score(total, beams.length + 1, self.settings),
                    outcome=_outcome(decision, row, rank, bool(is_over_N[row])),
                )
                self.observer.observe(candidate)
            if is_possible_K.any():
                self.nodes_NW[search] = nodes[decision.kept_NW[row]]
                self.num_nodes[sentence] += len(nodes)


def _outcome(decision: Decision, row: int, rank: int, is_over: bool) -> Outcome:
    """Return the outcome of one candidate."""
    is_end = bool(decision.is_end_NK[row, rank])
    if decision.finished_NK[row, rank]:
        return "finished" if is_end else "length"
    if is_end:
        return "end_outside_beam"
    if rank in decision.kept_NW[row]:
        return "stopped" if is_over else "kept"
    return "outside_beam"
