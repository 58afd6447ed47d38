"""What runs requests, one level above search: sentences of like length together, each answer in its place.

The same sentence gives the same tokens whatever it is decoded with. Its numbers depend on the company a little, because
kernels add in an order that depends on shapes: at preset tiny, alone or among 2 to 200 others, padded or not,
log-probabilities of tokens moved by up to 6e-6, of whole outputs by 2e-5, and the distance between two candidates by
1.1e-5. So a sentence in which any decision was closer than `CLOSE` is decoded once more, alone and without padding, and
that answer counts. With random weights, which are the hardest case, 13 of 1,000 sentences with a beam of 4 were, and
none with a beam of 1.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from clearhead.config import DecodingConfig
from clearhead.decoding.generator import Generator
from clearhead.decoding.progress import Found
from clearhead.decoding.scoring import Hypothesis
from clearhead.decoding.search import find
from clearhead.errors import DecodingError

CLOSE = 5e-5
"""Decisions closer than this, in log-probability, may fall differently in different company."""

# With several threads there are at least so many batches for each, that none waits long for the last one; but not by
# making them smaller than so many rows.
_BATCHES_EACH = 4
_FEWEST_ROWS = 64


@dataclass(frozen=True)
class Request:
    """One source to be decoded."""

    source: tuple[int, ...]
    """Ids as the encoder wants them, with the closing end token."""
    n_best: int = 1
    """How many hypotheses are wanted; at most the beam."""


class Engine(Protocol):
    """Something that answers requests."""

    def run(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[Hypothesis]]:
        """For each request its hypotheses, best first."""

    def unsupported(self, settings: DecodingConfig) -> list[str]:
        """Names of the settings that this engine cannot honour."""


class TorchEngine:
    """Runs our own search over a generator."""

    def __init__(
        self,
        generator: Generator[Any, Any],
        end_id: int,
        pad_id: int,
        vocab_size: int,
        max_positions: int,
        batch_tokens: int = 4096,
        threads: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """`batch_tokens`: largest number of source tokens a batch, with padding, times the beam.

        `threads`: batches decoded side by side, each on one thread of torch; 0 for as many as torch has threads.
        """
        self.generator = generator
        self.end_id = end_id
        self.pad_id = pad_id
        self.vocab_size = vocab_size
        self.max_positions = max_positions
        self.batch_tokens = batch_tokens
        self.threads = threads
        self.device = torch.device(device)
        self.num_decoded_again = 0
        self._lock = threading.Lock()

    def unsupported(self, settings: DecodingConfig) -> list[str]:
        """Nothing: this engine defines what the settings mean."""
        return []

    def run(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[Hypothesis]]:
        """For each request its hypotheses, best first."""
        for number, request in enumerate(requests, 1):
            self._check(number, request, settings)
        batches = self._batches(requests, settings)
        with _evaluating(self.generator):
            results = self._run_batches(requests, batches, settings)
        answers: list[list[Hypothesis]] = [[] for _ in requests]
        for batch, found in zip(batches, results, strict=True):
            for index, each in zip(batch, found, strict=True):
                answers[index] = each.hypotheses[: requests[index].n_best]
        return answers

    def _check(self, number: int, request: Request, settings: DecodingConfig) -> None:
        """Refuse what cannot be decoded."""
        length = len(request.source)
        if not 1 <= length <= self.max_positions:
            raise DecodingError(
                f"sentence {number} has {length} pieces, with its end; expected 1 to {self.max_positions}, which is "
                "what the model takes. Split it into shorter ones."
            )
        if not 0 <= min(request.source) <= max(request.source) < self.vocab_size:
            raise DecodingError(
                f"sentence {number} has pieces {min(request.source)} to {max(request.source)}; expected 0 to "
                f"{self.vocab_size - 1}. It was not made by the tokenizer of this model."
            )
        if not 1 <= request.n_best <= settings.beam:
            raise DecodingError(
                f"sentence {number} asks for {request.n_best} hypotheses; expected 1 to decoding.beam={settings.beam}. "
                "Raise the beam."
            )

    def _batches(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[int]]:
        """Indices of the requests, those of like length together."""
        batches: list[list[int]] = []
        workers = self._workers()
        share = max(
            _FEWEST_ROWS // settings.beam, len(requests) // (_BATCHES_EACH * workers) if workers > 1 else len(requests)
        )
        for index in sorted(range(len(requests)), key=lambda index: len(requests[index].source)):
            tokens = len(requests[index].source) * settings.beam  # of a row; the longest so far
            size = min(share, self.batch_tokens // tokens)
            if not batches or len(batches[-1]) >= size:
                batches.append([])
            batches[-1].append(index)
        return batches

    def _workers(self) -> int:
        return self.threads or torch.get_num_threads()

    def _run_batches(
        self, requests: Sequence[Request], batches: list[list[int]], settings: DecodingConfig
    ) -> list[list[Found]]:
        """Several side by side, each on one thread of torch: faster than one after the other on several threads."""
        work = [[requests[index] for index in batch] for batch in batches]
        workers = min(self._workers(), len(work))
        if workers <= 1 or self.device.type != "cpu":
            with _one_thread():
                return [self._run_batch(each, settings) for each in work]
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            longest_first = [pool.submit(self._run_batch, each, settings) for each in reversed(work)]
            return [future.result() for future in reversed(longest_first)]

    def _run_batch(self, requests: list[Request], settings: DecodingConfig) -> list[Found]:
        """One batch; what was close in it, again alone."""
        found = self._find(requests, settings)
        close = [place for place, each in enumerate(found) if each.margin < CLOSE and len(requests) > 1]
        for place in close:
            found[place] = self._find([requests[place]], settings)[0]
        with self._lock:
            self.num_decoded_again += len(close)
        return found

    def _find(self, requests: list[Request], settings: DecodingConfig) -> list[Found]:
        """These requests as one batch."""
        longest = max(len(request.source) for request in requests)
        rows = [[*request.source, *[self.pad_id] * (longest - len(request.source))] for request in requests]
        limits = [min(settings.longest(len(request.source) - 1), self.max_positions) for request in requests]
        n_best = max(request.n_best for request in requests)
        src_NS = torch.tensor(rows, device=self.device)
        return find(self.generator, src_NS, settings, limits, self.end_id, self.pad_id, n_best)


@contextmanager
def _evaluating(generator: object) -> Iterator[None]:
    """Without dropout, also in the middle of a training."""
    if not isinstance(generator, nn.Module) or not generator.training:
        yield
        return
    generator.eval()
    try:
        yield
    finally:
        generator.train()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch on one thread, for sums in one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
