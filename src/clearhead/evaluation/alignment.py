"""Evaluation of predicted word alignments against gold alignments."""

from collections.abc import Hashable, Set


def alignment_error_rate(predicted: Set[Hashable], gold: Set[Hashable]) -> float:
    """Return the alignment error rate (Och and Ney 2003), from 0 (best) to 1; all gold links are sure links.

    AER = 1 - 2 |A ∩ S| / (|A| + |S|). A link is a pair (source position, target position); for a corpus, prepend the
    sentence number to each link. The rate is 0 if neither side has links.
    """
    if not predicted and not gold:
        return 0.0
    return 1 - 2 * len(predicted & gold) / (len(predicted) + len(gold))
