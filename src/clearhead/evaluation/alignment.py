"""How well predicted word alignments match gold ones."""

from collections.abc import Hashable, Set


def alignment_error_rate(predicted: Set[Hashable], gold: Set[Hashable]) -> float:
    """Och and Ney's alignment error rate, 0 at best and 1 at worst, with every gold link a sure one.

    AER = 1 - 2 |A ∩ S| / (|A| + |S|). A link is a pair (source position, target position); for a whole corpus put
    the sentence's number in front, so that links are counted over all sentences. No links on either side: no error.
    """
    if not predicted and not gold:
        return 0.0
    return 1 - 2 * len(predicted & gold) / (len(predicted) + len(gold))
