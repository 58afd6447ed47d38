"""The CTranslate2 engine: its own search over a converted model, made to mean what our settings mean.

What differs from our search, and what is done about it:

- One limit a call: sentences are grouped by their limit. Greedy output is the same up to the limit, so there like
  limits go together, and what came out too long is cut.
- It divides by length^alpha, and counts the end token only where it is told to write it: it is told so.
- With an exponent of 0 it stops at the first finished best hypothesis. The best one is the same; where more are wanted,
  an exponent that is too small to matter keeps it going.
- The paper's normalisation: all `beam` hypotheses that it found are ranked again (`notes` says so).
- Input beyond 1,024 pieces would be cut off silently: that is switched off, and our own limit refuses.
- Padding and the start token are taken out before the softmax, so their share goes to the other tokens; with us it is
  lost. Token log-probabilities are therefore computed apart, by scoring the output; without them `log_prob` is the
  search's own, higher by that share.
- Behind a prompt its context does not slide: what does not fit is refused.

Knows token ids, nothing of text.
"""

import dataclasses
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import DecodingConfig, ModelConfig
from clearhead.config.decoding import SamplingConfig
from clearhead.decoding.hypothesis import Hypothesis
from clearhead.decoding.length_penalty import normalized_score, sum_log_probs
from clearhead.decoding.requests import Constraints, Request, check_request
from clearhead.engines.ctranslate2_models import ComputeType, Loaded, Pieces, PromptModel, SourceModel, Vocabulary
from clearhead.errors import DecodingError

_HONOURED = {"beam_size", "length_penalty", "length_penalty_form", "stopping_rule", "max_length"}
# Of prompts: how much is written, and what is put before them, which requests have done already.
_HONOURED_SAMPLING = {"max_tokens", "start"}
_IDLE_CONSTRAINTS = {"prompt", "first_sample"}  # used by rules and samples only
_PLAIN = DecodingConfig()
_NO_EXPONENT = 1e-30  # length ** this is 1 in any precision, but it is not 0
# Greedy sentences whose limits differ by less than so many tokens go together.
_ROOM = 16


@dataclasses.dataclass(frozen=True)
class Written:
    """One output of CTranslate2's search."""

    tokens: tuple[int, ...]
    is_ended: bool
    total: float
    """Sum of the log-probabilities, with the share of what is never written given to the rest."""

    @property
    def length(self) -> int:
        """Tokens that were generated, the end included."""
        return len(self.tokens) + self.is_ended


class CTranslate2Engine:
    """Answers requests with a model that `interop.ctranslate2.convert` wrote."""

    def __init__(
        self,
        folder: Path,
        config: ModelConfig,
        vocabulary: Vocabulary,
        compute_type: ComputeType = "float32",
        threads: int = 0,
        batch_tokens: int = 2048,
        token_log_probs: bool = True,
        context: int = 0,
        suppressed_tokens: Sequence[int] | None = None,
        has_shortlist: bool = False,
    ) -> None:
        """`threads`: batches decoded side by side, each on one thread; 0 for one per core.

        `batch_tokens`: largest number of source tokens a batch, with padding. `token_log_probs`: whether outputs are
        scored once more for the log-probability of each token, which otherwise stays empty. `context`: how many
        tokens the model reads, 0: as many as it has places. `suppressed_tokens`: tokens that are not written,
        besides padding; None: the start token. `has_shortlist`: the model was converted with one, which is used for
        all requests.
        """
        self.config = config
        self.vocabulary = list(vocabulary.pieces)
        self.source_vocabulary = list(vocabulary.read)
        self.batch_tokens = batch_tokens
        self.token_log_probs = token_log_probs
        self.is_prompted = config.family == "decoder"
        self.has_shortlist = has_shortlist
        self.context = context or config.max_positions
        suppressed = [config.decoder_start_id] if suppressed_tokens is None else suppressed_tokens
        self._suppressed = sorted(
            token for token in {*suppressed, config.pad_id} - {config.eos_id} if token < len(self.vocabulary)
        )
        self._ids = {piece: index for index, piece in enumerate(self.vocabulary)}
        self._end = self.vocabulary[config.eos_id]
        kind = PromptModel if self.is_prompted else SourceModel
        self._model: Loaded = kind(
            folder, compute_type=compute_type, inter_threads=threads or len(os.sched_getaffinity(0)), intra_threads=1
        )

    def unsupported(self, settings: DecodingConfig) -> list[str]:
        """Settings that this search does not have: any that is not named above and is not left as it is."""
        is_greedy = (
            settings.beam_size == 1 and settings.stopping_rule == "no_better_now"
        )  # what ends is better than what goes on
        names = (
            [f"decoding.stopping_rule={settings.stopping_rule}"]
            if settings.stopping_rule != "beam_finished" and not is_greedy
            else []
        )
        for name in DecodingConfig.model_fields:
            if self.is_prompted and name == "sampling":
                names += _unsupported_sampling(settings)
            elif name not in _HONOURED and getattr(settings, name) != getattr(_PLAIN, name):
                names.append(f"decoding.{name}")
        return names

    def notes(self, settings: DecodingConfig) -> list[str]:
        """What a user should know about the answers under these settings."""
        notes = []
        if self.has_shortlist:
            notes.append(
                "ctranslate2 gives all sentences of a batch the lists of all of them: what is written may depend on "
                "the batch; scores are shares of the whole vocabulary"
            )
        if settings.length_penalty_form == "gnmt" and settings.beam_size > 1:
            notes.append(
                "ctranslate2 has no decoding.length_penalty_form=gnmt: it searches by a power of the length, and the "
                f"{settings.beam_size} hypotheses that it finds are ranked by the paper's formula"
            )
        return notes

    def run(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[Hypothesis]]:
        """For each request its hypotheses, best first. Cancellations have no effect."""
        self._refuse(requests, settings)
        if not requests:
            return []
        written = self._search(requests, settings)
        log_probs = self._score(requests, written) if self.token_log_probs else None
        answers = []
        for row, request in enumerate(requests):
            scores = [None] * len(written[row]) if log_probs is None else log_probs[row]
            found = [_hypothesis(*pair, settings) for pair in zip(written[row], scores, strict=True)]
            answers.append(sorted(found, key=lambda each: -each.score)[: request.n_best])
        return answers

    def _refuse(self, requests: Sequence[Request], settings: DecodingConfig) -> None:
        names = set[str]()
        for number, request in enumerate(requests, 1):
            check_request(number, request, settings, self.context, len(self.source_vocabulary))
            if request.constraints is not None or request.image is not None:
                names |= _changed(request, {"source", "n_best", "name", "limit", "constraints", "cancellation"})
                names |= _changed(request.asked, _IDLE_CONSTRAINTS | ({"shortlist"} if self.has_shortlist else set()))
        names = set(self.unsupported(settings)) or names  # what settings ask for, requests ask for too
        if names:
            raise DecodingError(
                f"the ctranslate2 engine cannot honour {', '.join(sorted(names))}; leave it out, or use --engine torch"
            )
        if self.is_prompted:
            self._refuse_long(requests, settings)

    def _refuse_long(self, requests: Sequence[Request], settings: DecodingConfig) -> None:
        """Prompts behind which there is no room for the longest text; the last token of it is not read."""
        for number, request in enumerate(requests, 1):
            limit, room = request.longest(settings, self.context), self.context - len(request.source) + 1
            if limit > room:
                raise DecodingError(
                    f"{request.name or f'prompt {number}'}: its {len(request.source)} pieces and {limit} more do not "
                    f"fit into the {self.context} that the model reads at once; set max_tokens to {room} or less, or "
                    "use --engine torch, whose context slides"
                )

    def _search(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[Written]]:
        """What is written for each request, in groups of one limit each; prompts of one length each too."""
        most = self.context
        limits = [request.longest(settings, most) for request in requests]
        written: list[list[Written]] = [[] for _ in requests]
        everyone, lengths = range(len(requests)), [0] * len(requests)
        if self.is_prompted:
            lengths = [len(request.source) for request in requests]
        if settings.beam_size > 1 or self.is_prompted:
            self._search_groups(requests, _by_limit(everyone, limits, lengths), settings, written)
            return written
        self._search_groups(requests, _by_limit(everyone, _shared(limits), lengths), settings, written)
        self._cut([index for index in everyone if written[index][0].length > limits[index]], limits, requests, written)
        return written

    def _cut(
        self, too_long: list[int], limits: list[int], requests: Sequence[Request], written: list[list[Written]]
    ) -> None:
        """Greedy outputs at their limits. What such a part is worth search does not say: it is scored."""
        for index in too_long:
            written[index] = [Written(written[index][0].tokens[: limits[index]], False, 0.0)]
        if too_long and not self.token_log_probs:  # otherwise all are scored anyway
            scores = self._score([requests[index] for index in too_long], [written[index] for index in too_long])
            for index, [log_probs] in zip(too_long, scores, strict=True):
                written[index] = [dataclasses.replace(written[index][0], total=sum(log_probs))]

    def _search_groups(
        self,
        requests: Sequence[Request],
        groups: dict[tuple[int, int], list[int]],
        settings: DecodingConfig,
        written: list[list[Written]],
    ) -> None:
        """Fills in what is written for these groups, the longest first, all given to the workers at once."""
        waiting = []
        for key in sorted(groups, reverse=True):
            asked = [requests[index] for index in groups[key]]
            exponent = _exponent(settings, asked)
            waiting.append((groups[key], exponent, self._call(asked, key[0], exponent, settings)))
        for indices, exponent, futures in waiting:
            for index, future in zip(indices, futures, strict=True):
                pairs = zip(*self._model.outputs(future), strict=True)
                written[index] = [self._written(pieces, score, exponent) for pieces, score in pairs]

    def _call(self, asked: list[Request], limit: int, exponent: float, settings: DecodingConfig) -> list[Any]:
        """One call of CTranslate2, under way: a future for each request."""
        is_ranked_again = settings.length_penalty_form == "gnmt"
        return self._model.search(
            [self._source(request.source) for request in asked],
            limit,
            self.batch_tokens,
            settings.beam_size,
            num_hypotheses=settings.beam_size if is_ranked_again else max(request.n_best for request in asked),
            length_penalty=exponent,
            suppress_sequences=[[self.vocabulary[token]] for token in self._suppressed],
            return_end_token=True,
            return_scores=True,
            **({"use_vmap": True} if self.has_shortlist else {}),
        )

    def _written(self, pieces: Pieces, score: float, exponent: float) -> Written:
        is_ended = bool(pieces) and pieces[-1] == self._end
        tokens = tuple(self._ids[piece] for piece in (pieces[:-1] if is_ended else pieces))
        return Written(tokens, is_ended, score * len(pieces) ** exponent)

    def _score(self, requests: Sequence[Request], written: list[list[Written]]) -> list[list[tuple[float, ...]]]:
        """The log-probability of each token that was written, and of the end where it was."""
        flat = [(request.source, one) for request, found in zip(requests, written, strict=True) for one in found]
        sources, outputs = [self._source(source) for source, _ in flat], [self._pieces(one.tokens) for _, one in flat]
        results = self._model.score(sources, outputs, self._end, self.batch_tokens)
        log_probs = iter(
            tuple(float(value) for value in result[: one.length])
            for (_, one), result in zip(flat, results, strict=True)
        )
        return [[next(log_probs) for _ in found] for found in written]

    def _source(self, tokens: Iterable[int]) -> Pieces:
        return [self.source_vocabulary[token] for token in tokens]

    def _pieces(self, tokens: Iterable[int]) -> Pieces:
        return [self.vocabulary[token] for token in tokens]


def _exponent(settings: DecodingConfig, asked: Sequence[Request]) -> float:
    """What CTranslate2 raises the length to.

    For the paper's ((5+n)/6)^alpha it is the slope of that around the length of the sources (behind prompts, the
    limit), on a logarithmic scale: where more hypotheses finish than the beam is wide, those that would rank last are
    left out.
    """
    alpha = 0.0 if settings.length_penalty_form == "none" else settings.length_penalty
    if settings.length_penalty_form == "gnmt":
        length = sum(request.limit or len(request.source) for request in asked) / len(asked)
        return alpha * length / (5 + length) or _NO_EXPONENT
    return alpha or (0.0 if all(request.n_best == 1 for request in asked) else _NO_EXPONENT)


def _shared(limits: Sequence[int]) -> list[int]:
    """For each limit the highest of those that go together with it."""
    shared: dict[int, int] = {}
    highest = max(limits)
    for limit in sorted({*limits}, reverse=True):
        highest = highest if highest - limit < _ROOM else limit
        shared[limit] = highest
    return [shared[limit] for limit in limits]


def _by_limit(
    indices: Iterable[int], limits: Sequence[int], lengths: Sequence[int]
) -> dict[tuple[int, int], list[int]]:
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index in indices:
        groups[limits[index], lengths[index]].append(index)
    return groups


def _unsupported_sampling(settings: DecodingConfig) -> list[str]:
    """Of what holds for search too; how to draw matters only where something is drawn, which is refused anyway."""
    names = () if settings.method == "search" else SamplingConfig.model_fields
    plain = SamplingConfig()
    return [
        f"decoding.sampling.{name}"
        for name in {*names, "stop"} - _HONOURED_SAMPLING
        if getattr(settings.sampling, name) != getattr(plain, name)
    ]


def _changed(record: Request | Constraints, idle: set[str]) -> set[str]:
    """The fields of a record that are not as they are by themselves, but for those that do not matter."""
    plain = Request(()) if isinstance(record, Request) else Constraints()
    names = {field.name for field in dataclasses.fields(record)} - idle
    return {name for name in names if getattr(record, name) != getattr(plain, name)}


def _hypothesis(one: Written, log_probs: tuple[float, ...] | None, settings: DecodingConfig) -> Hypothesis:
    """With the score that our settings give it."""
    total = one.total if log_probs is None else sum_log_probs(log_probs)
    score = normalized_score(total, one.length, settings)
    return Hypothesis(one.tokens, score, total, log_probs or (), "end" if one.is_ended else "length")
