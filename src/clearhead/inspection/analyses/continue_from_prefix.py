"""Continuation of an output from given tokens: what a model would have generated after another choice."""

from collections.abc import Sequence

from clearhead.config import DecodingConfig
from clearhead.decoding.requests import Constraints
from clearhead.decoding.search import run_search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.errors import InspectionError
from clearhead.inspection.trace.run_trace import TraceInput
from clearhead.runtime.cancellation import Cancellation
from clearhead.tasks.task import LoadedModel


def continue_from_prefix(
    model: LoadedModel,
    given: TraceInput,
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
            f"a model for the task {model.config.task} writes nothing: there is nothing to go on from"
        )
    if not prefix or not all(0 <= token < config.vocab_size for token in prefix):
        raise InspectionError(f"expected one or more tokens from 0 to {config.vocab_size - 1}, got {list(prefix)}")
    generator, asked = model.generator, Constraints(tuple(prefix))
    first_RT, _ = generator.start(generator.encode(given.sources), 1)
    room = config.max_positions - first_RT.shape[1] + 1
    limit = min(settings.max_output_length(given.length), room)
    if prefix[-1] == config.eos_id or limit <= len(prefix):
        return list(prefix)
    [found] = run_search(
        SearchBatch(
            generator,
            given.sources,
            settings,
            [limit],
            config.eos_id,
            config.pad_id,
            constraints=[asked],
            cancellations=[cancellation],
        )
    )
    if cancellation is not None:
        cancellation.raise_if_cancelled()
    if not found.hypotheses:
        raise InspectionError("the model gives no finite probabilities, as one does whose training diverged")
    best = found.hypotheses[0]
    return [*best.tokens, *[config.eos_id] * (best.finish_reason == "end")]
