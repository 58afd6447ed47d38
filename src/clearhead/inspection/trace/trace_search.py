"""Search for the output of one input by the model's own engine: with its beam tree, or from a given prefix.

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
    """Observer that keeps every candidate."""

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
    """Return the hypotheses of one input and the tree of their search; raise InspectionError if there are too few."""
    max_length = max(1, _max_output_length(model, trace_input, settings))
    if settings.min_length > max_length:
        raise InspectionError(
            f"decoding.min_length={settings.min_length} is more than the limit of {max_length}; lower it"
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

    Raises RequestCancelledError if `cancellation` is set before the search has ended.
    """
    config = model.config.model
    if config.head != "generation":
        raise InspectionError(
            f"a model for the task {model.config.task} generates no text: a prefix cannot be continued"
        )
    if not prefix or not all(0 <= token < config.vocab_size for token in prefix):
        raise InspectionError(f"expected one or more tokens from 0 to {config.vocab_size - 1}, got {list(prefix)}")
    max_length = _max_output_length(model, trace_input, settings)
    if prefix[-1] == config.eos_id or max_length <= len(prefix):
        return list(prefix)
    hypotheses = _search(model, trace_input, settings, max_length, Constraints(tuple(prefix)), cancellation)
    if not hypotheses:
        raise InspectionError("the model gives no finite probabilities; its training probably diverged")
    return with_end_token(model, hypotheses[0])


def with_end_token(model: LoadedModel, hypothesis: Hypothesis) -> list[int]:
    """Return the tokens of a hypothesis, followed by the end token if it was generated."""
    return [*hypothesis.tokens, *[model.config.model.eos_id] * (hypothesis.finish_reason == "end")]


def _max_output_length(model: LoadedModel, trace_input: TraceInput, settings: DecodingConfig) -> int:
    """Return the limit of `decoding.max_length`, or of the model's positions after the prompt if that is lower."""
    first_RT, _ = model.generator.start(model.generator.encode(trace_input.sources), 1)
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
    config = model.config.model
    batch = SearchBatch(
        model.generator, trace_input.sources, settings, [max_length], config.eos_id, config.pad_id, n_best, observer,
        [constraints] if constraints else (), cancellations=[cancellation],
    )  # fmt: skip
    [result] = run_search(batch)
    if cancellation is not None:
        cancellation.raise_if_cancelled()
    return result.hypotheses
