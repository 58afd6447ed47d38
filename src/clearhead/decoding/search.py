"""Beam search over a generator's step function, for one batch; with a beam of 1 it is greedy search.

At each step a sentence has `beam` unfinished hypotheses. Of all their continuations those that write the end token
and are among the best `beam` are finished, and the best `beam` others go on. A sentence is over when `beam` hypotheses
are finished (`stop = beam_finished`); or when, moreover, no unfinished one can still beat the worst of the best `beam`
finished (`stop = cannot_improve`); or at its limit. At the limit the best `beam` continuations are taken as they are,
ended or cut, and ranked with the finished ones by normalised score. CTranslate2 does the same with `beam_finished`.

Knows token ids, nothing of text. Decisions are made on the host, for the whole batch at a time, with one transfer from
the device a step.

N sentences, W hypotheses of each, R = N*W rows, T tokens given at once, S source length
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.decoding.beams import Beams, decide
from clearhead.decoding.candidates import Ints, best_candidates
from clearhead.decoding.generator import Generator
from clearhead.decoding.observer import Narrator, Observer
from clearhead.decoding.progress import Found, Progress
from clearhead.decoding.scoring import Hypothesis
from clearhead.errors import DecodingError

__all__ = ["Hypothesis", "find", "search"]

# Greedy search carries rows of finished sentences along until they are this share of all: moving the others together
# copies their cache.
_IDLE_SHARE = 0.125


def search(
    generator: Generator[Any, Any],
    src_NS: Tensor,
    settings: DecodingConfig,
    limits: Sequence[int],
    end_id: int,
    pad_id: int,
    n_best: int = 1,
    observer: Observer | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of each sentence, best first; a limit counts generated tokens, the end token included."""
    found = find(generator, src_NS, settings, limits, end_id, pad_id, n_best, observer)
    return [each.hypotheses for each in found]


@torch.inference_mode()
def find(
    generator: Generator[Any, Any],
    src_NS: Tensor,
    settings: DecodingConfig,
    limits: Sequence[int],
    end_id: int,
    pad_id: int,
    n_best: int = 1,
    observer: Observer | None = None,
) -> list[Found]:
    """What `search` gives, with the margin of each sentence: how close the closest decision on the way was."""
    if n_best > settings.beam:
        raise DecodingError(f"expected n_best of at most decoding.beam={settings.beam}, not {n_best}; raise the beam.")
    narrator = None if observer is None else Narrator(observer, settings, len(limits))
    progress = Progress(settings, list(limits), end_id)
    beams = Beams.start(len(limits), settings.beam)
    tokens_RT, state = generator.start(generator.encode(src_NS), settings.beam)
    banned = _never_written(tokens_RT, end_id, pad_id)
    while True:
        step = generator.step(tokens_RT, state)
        found = best_candidates(step.logits_RTV[:, -1], beams.totals_NW, banned, 2 * settings.beam + 1)
        decision = decide(found, end_id, progress.is_last(beams), settings.beam)
        is_over_N = progress.record(beams, found, decision)
        if narrator is not None:
            narrator.tell(beams, found, decision, is_over_N)
        if is_over_N.all():
            return progress.results(n_best)
        beams, rows_NW = beams.advance(found, decision, is_over_N)
        if settings.beam > 1 or is_over_N.mean() > _IDLE_SHARE:
            beams, rows_NW = beams.keep(~is_over_N), rows_NW[~is_over_N]
        state = step.state
        if not _is_identity(rows_NW, len(is_over_N)):
            state = generator.select(state, torch.from_numpy(rows_NW.reshape(-1)).to(tokens_RT.device))
        tokens_RT = torch.from_numpy(beams.tokens_NWT[:, :, -1].reshape(-1, 1)).to(tokens_RT.device)


def _never_written(first_RT: Tensor, end_id: int, pad_id: int) -> list[int]:
    """Padding, and the start token where rows start from one that is not the end token too."""
    start = {int(first_RT[0, 0])} if first_RT.shape[1] == 1 else set()
    return sorted((start | {pad_id}) - {end_id})


def _is_identity(rows_NW: Ints, num_sentences: int) -> bool:
    """Whether all rows stay where they are."""
    return len(rows_NW) == num_sentences and bool((rows_NW.reshape(-1) == np.arange(rows_NW.size)).all())
