"""What runs requests, one level above search: sentences of like length together, each answer in its place.

The same sentence gives the same tokens whatever it is decoded with. Its numbers depend on the company a little, because
kernels add in an order that depends on shapes: among 5 to 250 others, padded or not, the distance between two of the
nine best candidates moved by up to 5e-6 with random weights, by 1.2e-5 in a model of Multi30k, and by 5.7e-5 in the
demo's on text that it had never learned; by the steps of one sentence, which have kernels of their own, by 1e-5 in the
second and 5e-5 in the third. So a sentence in which any decision was closer than `CLOSE`, which is nearly twice that,
is decoded once more, alone, and that answer counts. Of 1,014 sentences of Multi30k it was 1 with a beam of 1 and 4 with
a beam of 4; with random weights, which are the hardest case, 8 and 23.
"""

import heapq
import threading
from collections.abc import Generator as WhileWriting
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from clearhead.config import DecodingConfig
from clearhead.decoding.generator import Generator
from clearhead.decoding.layout import Layout
from clearhead.decoding.progress import Found
from clearhead.decoding.requests import Request, check_request
from clearhead.decoding.scoring import Hypothesis
from clearhead.decoding.search import CLOSE, Job, Walk, find
from clearhead.decoding.sliding import Sliding
from clearhead.engines.engine import NoOutputError
from clearhead.model.affine import fewer_rows, more_rows
from clearhead.model.blas import one_blas_thread, unwarned
from clearhead.model.short_attention import REGISTER

# With several threads there are at least so many batches for each, that none waits long for the last one; but not by
# making them smaller than so many rows. A step costs as much as so many more rows, however few it has.
_BATCHES_EACH = 2
_FEWEST_ROWS = 64
_ROWS_OF_A_STEP = 16


class TorchEngine:
    """Runs our own search over a generator."""

    def __init__(
        self,
        generator: Generator[Any, Any],
        end_id: int,
        pad_id: int,
        vocab_size: int,
        max_positions: int,
        batch_tokens: int = 8192,
        threads: int = 0,
        device: torch.device | str = "cpu",
        is_prompted: bool = False,
        never: Sequence[int] | None = None,
    ) -> None:
        """`batch_tokens`: largest number of source tokens a batch, with padding, times the beam.

        `threads`: batches decoded side by side, each on one thread of torch; 0 for as many as torch has threads.
        `is_prompted`: sources are prompts, which the output follows; where both together are longer than
        `max_positions`, the model goes on from the last half of them. `never`: tokens that are not written, besides
        padding; None: the start token.
        """
        self.generator = generator
        self.end_id = end_id
        self.pad_id = pad_id
        self.vocab_size = vocab_size
        self.max_positions = max_positions
        self.batch_tokens = batch_tokens
        self.threads = threads
        self.device = torch.device(device)
        self.is_prompted = is_prompted
        self.never = never
        self.num_decoded_again = 0
        self._lock = threading.Lock()

    def unsupported(self, settings: DecodingConfig) -> list[str]:
        """Nothing: this engine defines what the settings mean."""
        return []

    def notes(self, settings: DecodingConfig) -> list[str]:
        """Nothing, for the same reason."""
        return []

    def run(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[Hypothesis]]:
        """For each request its hypotheses, best first."""
        for number, request in enumerate(requests, 1):
            check_request(number, request, settings, self.max_positions, self.vocab_size)
        batches = self._batches(requests, settings)
        with _evaluating(self.generator):
            results = self._run_batches(requests, batches, settings)
        answers: list[list[Hypothesis]] = [[] for _ in requests]
        for batch, found in zip(batches, results, strict=True):
            for index, each in zip(batch, found, strict=True):
                answers[index] = each.hypotheses[: requests[index].n_best]
        if not all(answers):
            raise NoOutputError(requests, answers)
        return answers

    def _batches(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[int]]:
        """Indices of the requests, those of like shape and length together; the most work first.

        Of several sizes the one is taken with which all workers have finished first.
        """
        waiting, workers = self._waiting(requests, settings), self._workers()
        batches = _cut(waiting, self.batch_tokens, len(requests))
        if workers > 1 and batches:
            count, rows = max(_BATCHES_EACH, -(-len(batches) // workers)) * workers, waiting[0].rows
            each = most = more_rows(max(_FEWEST_ROWS, -(-len(requests) // count) * rows))
            ways = list[list[list[_Waiting]]]()
            while each >= max(_FEWEST_ROWS, most // 2):
                cut = _cut(waiting, self.batch_tokens, max(1, each // rows))
                ways.append(sorted(cut, key=_work, reverse=True))
                each = fewer_rows(each - 1)
            batches = min(ways, key=lambda way: _time(map(_work, way), workers))
        return [[one.number for one in batch] for batch in batches]

    def _waiting(self, requests: Sequence[Request], settings: DecodingConfig) -> list["_Waiting"]:
        """In the order in which they are put together."""
        fewest, waiting = self._fewest(settings), []
        for index, request in enumerate(requests):
            rows = Layout.of(settings, request.n_best, request.asked.phrases.size).rows
            limit = request.longest(settings, self.max_positions)
            room = max(request.places, fewest)
            if self.is_prompted:  # each row keeps the prompt and all that follows it
                room = min(room + limit, self.max_positions)
            waiting.append(_Waiting(self._shape(request), request.places, index, rows, room, limit))
        return sorted(waiting)

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
        one_thread_each = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
        with one_blas_thread(), one_thread_each as pool:
            running = [pool.submit(self._run_batch, each, settings) for each in work]
            return [future.result() for future in running]

    def _run_batch(self, requests: list[Request], settings: DecodingConfig) -> list[Found]:
        """One batch; what was close in it, again alone."""
        found = self._find(requests, settings)
        close = [place for place, each in enumerate(found) if each.margin < CLOSE and len(requests) > 1]
        for place in close:
            [found[place]] = self._find([requests[place]], settings)
        with self._lock:
            self.num_decoded_again += len(close)
        return found

    def _find(self, requests: list[Request], settings: DecodingConfig) -> list[Found]:
        """These requests as one batch."""
        with unwarned():
            return find(self._job(requests, settings, max(request.n_best for request in requests)))

    def _job(self, requests: Sequence[Request], settings: DecodingConfig, n_best: int = 1) -> Job:
        return Job(
            Sliding(self.generator, self.max_positions) if self.is_prompted else self.generator,
            self._sources(requests, self._fewest(settings) if len(requests) > 1 else 0),
            settings,
            [request.longest(settings, self.max_positions) for request in requests],
            self.end_id,
            self.pad_id,
            n_best,
            constraints=[request.asked for request in requests],
            never=self.never,
        )

    def stream(self, request: Request, settings: DecodingConfig) -> WhileWriting[tuple[int, ...], None, Hypothesis]:
        """The best hypothesis of one request; before that, as soon as any are, the tokens that it will begin with.

        A token is certain when all hypotheses that are finished or go on agree on it: in greedy search and in sampling
        at once, with a wide beam perhaps only at the end.
        """
        check_request(1, request, settings, self.max_positions, self.vocab_size)
        walk = Walk(self._job([request], settings))
        steps, shown = walk.steps(), tuple[int, ...]()
        while True:
            with (
                _evaluating(self.generator),
                _one_thread(),
                unwarned(),
            ):  # only while it computes: the rest is the caller's time
                beams = next(steps, None)
            if beams is None:
                break
            tokens_RT = beams.tokens_RT
            going = [tuple(tokens_RT[row].tolist()) for row in beams.live_rows().tolist()]
            ended = [one.tokens for each in walk.progress.finished for one in each]
            certain = _common([*going, *ended])
            if len(certain) > len(shown):
                shown = certain
                yield shown
        [found] = walk.progress.results(1)
        if not found.hypotheses:
            raise NoOutputError([request], [[]])
        return found.hypotheses[0]

    def _shape(self, request: Request) -> tuple[int, int, int, bool, bool]:
        """What the requests of a batch must have in common; prompts of other lengths would have to be padded."""
        asked = request.asked
        length = len(request.source) if self.is_prompted else 0
        has_picture, has_list = request.picture is not None, asked.shortlist is not None
        return len(asked.prefix), asked.phrases.size, length, has_picture, has_list

    def _fewest(self, settings: DecodingConfig) -> int:
        """Places that the sources of a batch have at least, for attention up to three times as fast.

        Coverage counts them, and prompts cannot be padded.
        """
        is_free = self.device.type == "cpu" and not self.is_prompted and not settings.coverage_penalty
        return min(REGISTER, self.max_positions) if is_free else 0

    def _sources(self, requests: Sequence[Request], fewest: int) -> Tensor:
        """src_NS padded behind, or pictures_NCYX."""
        pictures = [request.picture.pixels_CYX for request in requests if request.picture is not None]
        if pictures:
            return torch.stack(pictures).to(self.device)
        longest = max(fewest, *(len(request.source) for request in requests))
        rows = [[*request.source, *[self.pad_id] * (longest - len(request.source))] for request in requests]
        return torch.tensor(rows, device=self.device)


class _Waiting(NamedTuple):
    """What a request needs."""

    shape: tuple[int, int, int, bool, bool]  # what those of a batch have in common
    places: int  # of its source
    number: int  # of the request
    rows: int
    room: int  # places that are held for each row
    limit: int


def _cut(waiting: Sequence[_Waiting], batch_tokens: int, most: int) -> list[list[_Waiting]]:
    """Into batches of at most so many, and no more than memory is made for; the longest of a batch comes last."""
    batches: list[list[_Waiting]] = []
    for one in waiting:
        size = min(most, fewer_rows(batch_tokens // one.room) // one.rows)
        if not batches or one.shape != batches[-1][0].shape or len(batches[-1]) >= size:
            batches.append([])
        batches[-1].append(one)
    return batches


def _work(batch: Sequence[_Waiting]) -> float:
    """What a batch costs, about: its sources are read, and as much is written, row by row, as far as it may."""
    last = batch[-1]
    steps = min(last.places, last.limit)
    return len(batch) * (last.places + last.rows * steps) + _ROWS_OF_A_STEP * steps


def _time(work: Iterable[float], workers: int) -> float:
    """When the last one has finished, if each takes the next as soon as it is free."""
    busy_until = [0.0] * workers
    for each in work:
        heapq.heapreplace(busy_until, busy_until[0] + each)
    return max(busy_until)


def _common(rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """What all of them begin with; nothing where there are none."""
    if not rows:
        return ()
    same = (len({*column}) == 1 for column in zip(*rows, strict=False))
    return rows[0][: next((place for place, is_same in enumerate(same) if not is_same), min(map(len, rows)))]


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
    """Torch and numpy on one thread, for sums in one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with one_blas_thread():
            yield
    finally:
        torch.set_num_threads(threads)
