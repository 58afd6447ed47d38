"""Search for the output of one input with the model's inference engine, and continuation of a given prefix.

R rows (1), T prompt positions
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.config import DecodingConfig
from clearhead.decoding.observer import Candidate, Observer
from clearhead.decoding.requests import Constraints, Hypothesis
from clearhead.decoding.search import run_search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.errors import InspectionError
from clearhead.inspection.trace.trace_input import TraceInput
from clearhead.runtime.cancellation import Cancellation
from clearhead.tasks.lexical_constraints import resolve_constraints
from clearhead.tasks.task import LoadedModel


@dataclass(frozen=True)
class SearchTrace:
    """The hypotheses of one input and every candidate of their search."""

    hypotheses: tuple[Hypothesis, ...]
    tree: tuple[Candidate, ...]


class _CandidateList:
    """Search observer that collects every candidate."""

    def __init__(self) -> None:
        self.candidates: list[Candidate] = []

    def observe(self, candidate: Candidate) -> None:
        """Add a candidate."""
        self.candidates.append(candidate)


def trace_search(
    model: LoadedModel,
    trace_input: TraceInput,
    settings: DecodingConfig,
    hypothesis: int = 0,
    cancellation: Cancellation | None = None,
) -> SearchTrace:
    """Return the hypotheses and the search tree of one input.

    Raises InspectionError if the search found no hypothesis with the index `hypothesis`, or if the minimum length is
    above the model's limit, and RequestCancelledError if `cancellation` is set before the search has ended.
    """
    max_length = max(1, _max_output_length(model, trace_input, settings))
    if settings.min_length > max_length:
        raise InspectionError(
            f"decoding.min_length={settings.min_length} is above the maximum length of {max_length}; lower it"
        )
    constraints = resolve_constraints(settings, model.tokenizer.target)
    n_best = settings.beam_size if settings.method == "search" else max(1, hypothesis + 1)
    observer = _CandidateList()
    hypotheses = _search(
        model, trace_input, settings, max_length, constraints, cancellation, n_best=n_best, observer=observer
    )
    if not 0 <= hypothesis < len(hypotheses):
        raise InspectionError(
            f"expected one of the {len(hypotheses)} hypotheses of the search, counted from 0; got {hypothesis}"
        )
    return SearchTrace(tuple(hypotheses), tuple(observer.candidates))


def continue_from_prefix(
    model: LoadedModel,
    trace_input: TraceInput,
    prefix: Sequence[int],
    settings: DecodingConfig,
    cancellation: Cancellation | None = None,
) -> list[int]:
    """Return the prefix and its best continuation, with the end token if it is generated.

    Returns the prefix unchanged if it ends with the end token or has the maximum length. Raises RequestCancelledError
    if `cancellation` is set before the search has ended.
    """
    config = model.config.model
    if config.head != "generation":
        raise InspectionError(
            f"a model for the task {model.config.task} does not generate text and cannot continue a prefix"
        )
    if not prefix or not all(0 <= token < config.vocab_size for token in prefix):
        raise InspectionError(f"expected one or more tokens from 0 to {config.vocab_size - 1}, got {list(prefix)}")
    max_length = _max_output_length(model, trace_input, settings)
    if prefix[-1] == config.eos_id or max_length <= len(prefix):
        return list(prefix)
    hypotheses = _search(model, trace_input, settings, max_length, Constraints(tuple(prefix)), cancellation)
    if not hypotheses:
        raise InspectionError("the model's probabilities are not finite; its training has probably diverged")
    return with_end_token(model, hypotheses[0])


def with_end_token(model: LoadedModel, hypothesis: Hypothesis) -> list[int]:
    """Return the tokens of a hypothesis, followed by the end token if it was generated."""
    return [*hypothesis.tokens, *[model.config.model.eos_id] * (hypothesis.finish_reason == "end")]


def _max_output_length(model: LoadedModel, trace_input: TraceInput, settings: DecodingConfig) -> int:
    """Return the minimum of `decoding.max_length` and the number of positions that the prompt leaves free."""
    first_RT, _ = model.generator.start(model.generator.encode(trace_input.sources), 1)
    # The first inputs (start token or prompt) occupy positions; the last output needs none, as it is not fed back.
    free_positions: int = model.config.model.max_positions - first_RT.shape[1] + 1
    return min(settings.max_output_length(trace_input.length), free_positions)


def _search(
    model: LoadedModel,
    trace_input: TraceInput,
    settings: DecodingConfig,
    max_length: int,
    constraints: Constraints | None,
    cancellation: Cancellation | None,
    n_best: int = 1,
    observer: Observer | None = None,
) -> list[Hypothesis]:
    """Return the hypotheses of one search; raise RequestCancelledError if it was cancelled."""
    config = model.config.model
    batch = SearchBatch(
        model.generator, trace_input.sources, settings, [max_length], config.eos_id, config.pad_id, n_best, observer,
        [constraints] if constraints else (), cancellations=[cancellation],
    )  # fmt: skip
    [result] = run_search(batch)
    if cancellation is not None:
        cancellation.raise_if_cancelled()
    return result.hypotheses
