"""The torch engine: batches of requests of similar length, searched over a torch module.

Every request gets the same tokens in any batch. Log-probabilities depend on the batch slightly, because kernels sum in
an order that depends on shapes: among 5 to 250 other sentences, padded or not, the difference between two of the nine
best candidates moved by up to 5e-6 with random weights, by 1.2e-5 in a model of Multi30k, and by 5.7e-5 on text unlike
the training data; sums of 50 log-probabilities in float32 add up to 3e-5. A sentence with a decision by
less than `CLOSE` is therefore decoded again, alone, and that result is returned.
"""

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import torch

from clearhead.config import DecodingConfig
from clearhead.decoding.generator import Generator as TokenGenerator
from clearhead.decoding.generator import SlidingWindow
from clearhead.decoding.requests import Hypothesis, NoOutputError, Request, SearchResult, check_answers, check_request
from clearhead.decoding.search import run_search, stream_search
from clearhead.decoding.search_batch import BeamLayout, SearchBatch
from clearhead.engines.threads import run_in_threads
from clearhead.engines.torch_forward import TorchGenerator, evaluating

CLOSE = 2e-4
"""Margin, in log-probability, below which the other sentences of a batch may change a decision."""

_BATCHES_PER_THREAD = 2  # minimum with several threads, so that no thread waits long for the last batch
_MIN_ROWS = 64  # batches are not made smaller to reach that minimum
_ROWS_PER_STEP = 16  # a step has a fixed cost equal to that of this number of rows


class TorchEngine:
    """Engine that runs the search over a torch module."""

    def __init__(
        self,
        network: Any,
        eos_id: int,
        pad_id: int,
        vocab_size: int,
        max_positions: int,
        batch_tokens: int = 8192,
        threads: int = 0,
        device: torch.device | str = "cpu",
        is_prompted: bool = False,
        suppressed_tokens: Sequence[int] | None = None,
    ) -> None:
        """`batch_tokens`: largest number of source tokens per batch, with padding, times the beam size.

        `threads`: batches decoded in parallel, each on one thread; 0: torch's number of threads. `is_prompted`: sources
        are prompts that outputs continue; beyond `max_positions` the context slides. `suppressed_tokens`: tokens that
        are never generated, besides padding; None: the start token.
        """
        self.network = network
        self.eos_id = eos_id
        self.pad_id = pad_id
        self.vocab_size = vocab_size
        self.max_positions = max_positions
        self.batch_tokens = batch_tokens
        self.threads = threads
        self.device = torch.device(device)
        self.is_prompted = is_prompted
        self.suppressed_tokens = suppressed_tokens
        self.num_decoded_again = 0
        self._lock = threading.Lock()

    def run(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, best first; none for a request that is cancelled."""
        for number, request in enumerate(requests, 1):
            check_request(number, request, settings, self.max_positions, self.vocab_size)
        batches = self._batches(requests, settings)
        with evaluating(self.network):
            results = self._run_batches(requests, batches, settings)
        answers: list[list[Hypothesis]] = [[] for _ in requests]
        for batch, batch_results in zip(batches, results, strict=True):
            for index, result in zip(batch, batch_results, strict=True):
                answers[index] = result.hypotheses[: requests[index].n_best]
        return check_answers(requests, answers)

    def stream(self, request: Request, settings: DecodingConfig) -> Generator[tuple[int, ...], None, Hypothesis]:
        """Yield ever longer beginnings of the best output, and return the hypothesis."""
        check_request(1, request, settings, self.max_positions, self.vocab_size)
        steps = stream_search(self._search_batch([request], settings))
        while True:
            # The settings are changed only during the steps; between them, the caller's settings apply.
            with evaluating(self.network), _one_thread():
                try:
                    tokens = next(steps)
                except StopIteration as done:
                    result: SearchResult = done.value
                    break
            yield tokens
        if not result.hypotheses:
            raise NoOutputError([request], [[]])
        return result.hypotheses[0]

    def _batches(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[int]]:
        """Return the indices of the requests of each batch, grouped by shape and length, the most work first."""
        pending, workers = self._pending(requests, settings), self._workers()
        batches = _split(pending, self.batch_tokens, len(requests))
        if workers > 1 and batches:
            count, rows = max(_BATCHES_PER_THREAD, -(-len(batches) // workers)) * workers, pending[0].rows
            max_requests = max(_MIN_ROWS // rows, -(-len(requests) // count), 1)
            batches = sorted(_split(pending, self.batch_tokens, max_requests), key=_work, reverse=True)
        return [[request.number for request in batch] for batch in batches]

    def _pending(self, requests: Sequence[Request], settings: DecodingConfig) -> list["_Pending"]:
        """Return the requests in the order in which they are batched."""
        pending = []
        for index, request in enumerate(requests):
            rows = BeamLayout.of(settings, request.n_best, request.constraints_or_empty.include.num_tokens).rows
            limit = request.output_limit(settings, self.max_positions)
            positions = request.source_length
            if self.is_prompted:  # each row caches the prompt and the tokens after it
                positions = min(positions + limit, self.max_positions)
            pending.append(_Pending(self._shape(request), request.source_length, index, rows, positions, limit))
        return sorted(pending)

    def _workers(self) -> int:
        return self.threads or torch.get_num_threads()

    def _run_batches(
        self, requests: Sequence[Request], batches: list[list[int]], settings: DecodingConfig
    ) -> list[list[SearchResult]]:
        """Run the batches in parallel, each on one thread: faster than one after the other on several threads."""
        work = [[requests[index] for index in batch] for batch in batches]
        workers = min(self._workers(), len(work))
        if workers <= 1 or self.device.type != "cpu":
            with _one_thread():
                return [self._run_batch(batch_requests, settings) for batch_requests in work]

        def run(batch: list[Request], stop: Event) -> list[SearchResult]:
            return self._run_batch(batch, settings, stop)

        return run_in_threads(run, work, workers, partial(torch.set_num_threads, 1))

    def _run_batch(
        self, requests: list[Request], settings: DecodingConfig, stop: Event | None = None
    ) -> list[SearchResult]:
        """Run one batch, then run each sentence with a close decision again, alone."""
        results = self._search(requests, settings, stop)
        if stop is not None and stop.is_set():
            return results
        close = [index for index, result in enumerate(results) if result.margin < CLOSE and len(requests) > 1]
        for index in close:
            [results[index]] = self._search([requests[index]], settings, stop)
        with self._lock:
            self.num_decoded_again += len(close)
        return results

    def _search(
        self, requests: list[Request], settings: DecodingConfig, stop: Event | None = None
    ) -> list[SearchResult]:
        """Search these requests as one batch."""
        batch = self._search_batch(requests, settings, max(request.n_best for request in requests))
        return run_search(batch, stop)

    def _search_batch(self, requests: Sequence[Request], settings: DecodingConfig, n_best: int = 1) -> SearchBatch:
        generator: TokenGenerator = TorchGenerator(self.network, self.pad_id, self.device)
        if self.is_prompted:
            generator = SlidingWindow(generator, self.max_positions)
        images = [request.image.pixels_CYX for request in requests if request.image is not None]
        return SearchBatch(
            generator,
            np.stack(images) if images else [request.source for request in requests],
            settings,
            [request.output_limit(settings, self.max_positions) for request in requests],
            self.eos_id,
            self.pad_id,
            n_best,
            constraints=[request.constraints_or_empty for request in requests],
            suppressed_tokens=self.suppressed_tokens,
            cancellations=[request.cancellation for request in requests],
        )

    def _shape(self, request: Request) -> tuple[int, int, int, bool, bool]:
        """Return the properties that the requests of a batch share; prompts are not padded."""
        constraints = request.constraints_or_empty
        length = len(request.source) if self.is_prompted else 0
        has_shortlist = constraints.shortlist is not None
        required_tokens = constraints.include.num_tokens
        return len(constraints.prefix), required_tokens, length, request.image is not None, has_shortlist


class _Pending(NamedTuple):
    """Size of a request."""

    shape: tuple[int, int, int, bool, bool]  # shared by the requests of a batch
    source_length: int
    number: int  # index of the request
    rows: int
    positions: int  # number of cached positions per row
    limit: int


def _split(pending: Sequence[_Pending], batch_tokens: int, max_requests: int) -> list[list[_Pending]]:
    """Return batches of at most `max_requests` that fit into `batch_tokens`; the longest request of a batch is last."""
    batches: list[list[_Pending]] = []
    for request in pending:
        size = min(max_requests, batch_tokens // request.positions // request.rows)
        if not batches or request.shape != batches[-1][0].shape or len(batches[-1]) >= size:
            batches.append([])
        batches[-1].append(request)
    return batches


def _work(batch: Sequence[_Pending]) -> float:
    """Estimate the cost of a batch: its source positions, and as many output positions per row, at most the limit."""
    last = batch[-1]
    steps = min(last.source_length, last.limit)
    return len(batch) * (last.source_length + last.rows * steps) + _ROWS_PER_STEP * steps


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run torch on one thread, so that sums have one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
