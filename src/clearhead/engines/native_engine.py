"""The native engine: inference in the C++ core, without torch.

Greedy and beam search run inside the core. Everything else (sampling, prefixes, lexical constraints, n-gram blocking,
diverse groups, coverage, stop conditions, contexts that slide) runs in the search of `decoding` over the core's steps.
Both searches find the same outputs. Results are bit-identical in any batch and with any number of threads.
"""

from collections.abc import Generator, Sequence
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.config import DecodingConfig
from clearhead.decoding.generator import Generator as TokenGenerator
from clearhead.decoding.generator import SlidingWindow
from clearhead.decoding.penalties import length_penalties
from clearhead.decoding.requests import Hypothesis, NoOutputError, Request, SearchResult, check_answers, check_request
from clearhead.decoding.search import run_search, stream_search
from clearhead.decoding.search_batch import BeamLayout, SearchBatch
from clearhead.engines.native_generator import NativeGenerator
from clearhead.engines.threads import run_in_threads
from clearhead.runtime import CoreHypothesis, CoreSearch, NativeModel

Floats = NDArray[np.float32]

BATCH_ROWS = 96
"""Maximum number of rows of a batch that is searched outside of the core."""


class NativeEngine:
    """Engine that generates token sequences, over a model in the core."""

    def __init__(
        self,
        model: NativeModel,
        threads: int = 1,
        max_positions: int = 0,
        suppressed_tokens: Sequence[int] | None = None,
        token_log_probs: bool = True,
    ) -> None:
        """`max_positions`: context length; 0: that of the model. `suppressed_tokens`: tokens that are never generated,
        besides padding; None: the start token of a model with an encoder. Without `token_log_probs` greedy search is
        faster: it skips the softmax, and the scores of its hypotheses are NaN."""
        config = model.config
        self.model = model
        self.threads = threads
        self.token_log_probs = token_log_probs
        self.is_prompted = config.family == "decoder"
        self.max_positions = max_positions or config.max_positions
        default = () if self.is_prompted else (config.decoder_start_id,)
        self.suppressed_tokens = tuple(default if suppressed_tokens is None else suppressed_tokens)

    def run(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, best first; none for a request that is cancelled."""
        vocab_size = self.model.config.input_vocab_size
        for number, request in enumerate(requests, 1):
            check_request(number, request, settings, self.max_positions, vocab_size)
        answers: list[list[Hypothesis]] = [[] for _ in requests]
        in_core = [index for index, request in enumerate(requests) if self.runs_in_core(request, settings)]
        for has_shortlist in (False, True):
            batch = [index for index in in_core if _has_shortlist(requests[index]) == has_shortlist]
            results = self._search_in_core([requests[index] for index in batch], settings)
            for index, hypotheses in zip(batch, results, strict=True):
                answers[index] = [_hypothesis(hypothesis) for hypothesis in hypotheses or []][: requests[index].n_best]
        in_python = sorted({*range(len(requests))} - {*in_core})
        for index, result in zip(
            in_python, self._search_in_python([requests[i] for i in in_python], settings), strict=True
        ):
            answers[index] = result.hypotheses[: requests[index].n_best]
        return check_answers(requests, answers)

    def runs_in_core(self, request: Request, settings: DecodingConfig) -> bool:
        """Return whether the core's own search supports the request."""
        constraints = request.constraints
        if settings.method != "search" or settings.beam_groups > 1:
            return False
        if settings.coverage_penalty or settings.no_repeat_ngram_size:
            return False
        if constraints is not None and (
            constraints.prefix
            or constraints.include.phrases
            or constraints.exclude
            or constraints.is_stopped is not None
        ):
            return False
        return not self.is_prompted or self._last_position(request, settings) < self.max_positions

    def _last_position(self, request: Request, settings: DecodingConfig) -> int:
        return len(request.source) + request.output_limit(settings, self.max_positions) - 2

    def _search_in_core(
        self, requests: Sequence[Request], settings: DecodingConfig
    ) -> list[list[CoreHypothesis] | None]:
        """Return the results of the core's search; either all requests have a shortlist or none has."""
        if not requests:
            return []
        config = self.model.config
        suppressed = {*self.suppressed_tokens, config.pad_id} - {config.eos_id}
        limits = [request.output_limit(settings, self.max_positions) for request in requests]
        lists = None
        if _has_shortlist(requests[0]):
            lists = [self._allowed(request, suppressed) for request in requests]
        core_settings = CoreSearch(
            length_penalties(settings, max(limits)),
            end_id=config.eos_id,
            start_id=config.decoder_start_id,
            beam_size=settings.beam_size,
            n_best=max(request.n_best for request in requests),
            min_length=settings.min_length,
            stopping_rule=settings.stopping_rule,
            suppressed=tuple(sorted(suppressed)),
            threads=self.threads,
            want_scores=self.token_log_probs,
        )
        cancellations = [request.cancellation for request in requests]
        return self.model.search([request.source for request in requests], limits, core_settings, lists, cancellations)

    def _allowed(self, request: Request, suppressed: set[int]) -> NDArray[np.int32]:
        """Return the shortlist of a request that runs in the core, ascending, with the end token."""
        shortlist = request.constraints_or_empty.shortlist
        assert shortlist is not None
        tokens = np.array((*shortlist.tokens, self.model.config.eos_id), dtype=np.int32)
        return np.unique(tokens[~np.isin(tokens, [*suppressed])])

    def _search_in_python(self, requests: list[Request], settings: DecodingConfig) -> list[SearchResult]:
        """Return the results of the search of `decoding`, batch by batch on several threads."""
        if not requests:
            return []
        batches = self._batches(requests, settings)

        def run(batch: list[int], stop: Event) -> list[SearchResult]:
            return run_search(self._search_batch([requests[index] for index in batch], settings), stop)

        results: dict[int, SearchResult] = {}
        for batch, batch_results in zip(batches, run_in_threads(run, batches, self.threads), strict=True):
            results.update(zip(batch, batch_results, strict=True))
        return [results[index] for index in range(len(requests))]

    def _batches(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[int]]:
        """Return the indices of the requests of each batch; the requests of a batch have the same `_shape`."""
        keys = [(_shape(request, self.is_prompted), len(request.source)) for request in requests]
        batches: list[list[int]] = []
        for index in sorted(range(len(requests)), key=lambda index: keys[index]):
            required_tokens = requests[index].constraints_or_empty.include.num_tokens
            rows = BeamLayout.of(settings, requests[index].n_best, required_tokens).rows
            is_full = batches and (len(batches[-1]) + 1) * rows > BATCH_ROWS
            if not batches or is_full or keys[batches[-1][0]][0] != keys[index][0]:
                batches.append([])
            batches[-1].append(index)
        return batches

    def _search_batch(self, requests: Sequence[Request], settings: DecodingConfig) -> SearchBatch:
        generator: TokenGenerator = NativeGenerator(self.model)
        if self.is_prompted:
            generator = SlidingWindow(generator, self.max_positions)
        config = self.model.config
        return SearchBatch(
            generator,
            [request.source for request in requests],
            settings,
            [request.output_limit(settings, self.max_positions) for request in requests],
            config.eos_id,
            config.pad_id,
            max(request.n_best for request in requests),
            constraints=[request.constraints_or_empty for request in requests],
            suppressed_tokens=self.suppressed_tokens,
            cancellations=[request.cancellation for request in requests],
        )

    def stream(self, request: Request, settings: DecodingConfig) -> Generator[tuple[int, ...], None, Hypothesis]:
        """Yield ever longer beginnings of the best output, and return the hypothesis."""
        check_request(1, request, settings, self.max_positions, self.model.config.input_vocab_size)
        result = yield from stream_search(self._search_batch([request], settings))
        if not result.hypotheses:
            raise NoOutputError([request], [[]])
        return result.hypotheses[0]


class NativeScoringEngine:
    """Engine that computes the probabilities of given outputs, over a model in the core."""

    def __init__(self, model: NativeModel, threads: int = 1) -> None:
        self.model = model
        self.threads = threads

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        attention_layer: int | None = None,
    ) -> list[tuple[Floats, Floats | None]]:
        """Return for each pair the log-probabilities [T] of the target tokens, and a layer's cross-attention [H, T, S].

        A translator predicts target token t from the source and the target tokens before t; source and target have
        their end token. A language model predicts target token t from source tokens 0 to t.
        """
        if not sources:
            return []
        start = self.model.config.decoder_start_id
        scores, attention = self.model.score(sources, targets, start, attention_layer, self.threads)
        if attention is None:
            return [(each, None) for each in scores]
        return [*zip(scores, attention, strict=True)]


class NativeEncoderEngine:
    """Engine that encodes texts, over a model in the core."""

    def __init__(self, model: NativeModel, threads: int = 1) -> None:
        self.model = model
        self.threads = threads

    def pooled(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Return one vector per row, pooled as the model is configured, [N, D]."""
        return self.model.pooled(rows, self.threads)

    def mean_states(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Return the mean of the encoder states of each row, [N, D]."""
        return self.model.mean_states(rows, self.threads)

    def logits(self, rows: Sequence[Sequence[int]]) -> list[Any]:
        """Return the logits of each row: [L], or [S, L] of a token classifier."""
        if self.model.config.head == "token_classification":
            return self.model.tag_logits(rows, self.threads)
        return [*self.model.class_logits(rows, self.threads)]

    def masked_lm(self, rows: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]) -> list[Floats]:
        """Return the log-probabilities at the given positions of each row, [M, V]."""
        return self.model.masked_log_probs(rows, positions, self.threads)


def _shape(request: Request, is_prompted: bool) -> tuple[int, int, int, bool]:
    """Return the properties that the requests of a batch share; prompts are not padded."""
    constraints, length = request.constraints_or_empty, len(request.source) if is_prompted else 0
    return len(constraints.prefix), constraints.include.num_tokens, length, constraints.shortlist is not None


def _has_shortlist(request: Request) -> bool:
    return request.constraints is not None and request.constraints.shortlist is not None


def _hypothesis(result: CoreHypothesis) -> Hypothesis:
    log_probs = tuple(result.token_log_probs)
    return Hypothesis(tuple(result.tokens), result.score, result.total, log_probs, result.finish_reason)
