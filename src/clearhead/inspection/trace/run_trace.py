"""Making a trace: search with someone who watches, then one forced pass over what was found, with hooks.

Knows networks by two seams only: one that writes is a Generator, one that reads has a Reader and a head on it. The
get_task of a model says how its text becomes ids.

R rows (one here), S source places, T target places, V vocabulary or labels
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.config import DecodingConfig
from clearhead.decoding.generator import Sources
from clearhead.decoding.observer import Candidate
from clearhead.decoding.requests import Hypothesis
from clearhead.decoding.search import run_search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.errors import DataError, InspectionError
from clearhead.inspection.trace.activation_recorder import RecordedAttention, Recorder
from clearhead.inspection.trace.token_spans import source_token_spans, target_token_spans
from clearhead.inspection.trace.trace_types import (
    AttentionArithmetic,
    PatchGrid,
    ResidualStream,
    TokenProb,
    TokenSpan,
    Trace,
    TracedAttention,
    TreeNode,
)
from clearhead.model.vision.vision_transformer import PatchEmbedding, patches_per_side
from clearhead.runtime.cancellation import Cancellation
from clearhead.tasks.image_classification.inference import read_images, scale_pixels
from clearhead.tasks.lexical_constraints import resolve_constraints
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import LoadedModel
from clearhead.tasks.text_codec import max_input_tokens

NUM_CANDIDATES = 10


@dataclass(frozen=True)
class TraceInput:
    """An input as a network takes it."""

    text: str
    src: Tensor  # src_1S or pictures_1CYX
    places: tuple[TokenSpan, ...]
    grid: PatchGrid | None = None

    @property
    def sources(self) -> Sources:
        """The input for the search."""
        return self.src.numpy() if self.src.is_floating_point() else self.src.tolist()

    @property
    def length(self) -> int:
        """How long it is for `decoding.max_length`: its pieces without the frame, or its patches."""
        return sum(not place.is_special for place in self.places)


@dataclass(frozen=True)
class SearchOutput:
    """What search found for one input, and all that it looked at."""

    hypotheses: tuple[Hypothesis, ...] = ()
    tree: tuple[Candidate, ...] = ()
    chosen: int | None = None


def text_input(model: LoadedModel, text: str) -> TraceInput:
    """A text as the model's own verb would read it; refuses one that is empty or too long."""
    task = get_task(model.config.task)
    [pieces] = task.codec.encode(model.tokenizer, [text])
    if not pieces:
        raise DataError("expected a text to look at, got an empty one; give it a sentence")
    ids = task.codec.add_special_tokens(model.tokenizer, pieces)
    limit = max_input_tokens(model.config)
    if len(ids) > limit:
        frame = len(ids) - len(pieces)
        raise DataError(f"the text has {len(pieces):,} pieces, the model takes {limit - frame:,}; shorten it")
    return TraceInput(text, torch.tensor([ids]), source_token_spans(model.tokenizer, text, ids))


def image_input(model: LoadedModel, path: Path) -> TraceInput:
    """A picture as the model's own verb would read it."""
    places, grid = patch_positions(model.network)
    return TraceInput(str(path), torch.from_numpy(scale_pixels(read_images(model.config.model, [path]))), places, grid)


def patch_positions(network: nn.Module) -> tuple[tuple[TokenSpan, ...], PatchGrid | None]:
    """The places of a picture, and how they lie; none where a network does not cut pictures into patches."""
    for module in network.modules():
        if isinstance(module, PatchEmbedding):
            side, has_class_token = patches_per_side(module.config), module.class_token is not None
            patches = [TokenSpan(f"{row},{column}") for row in range(side) for column in range(side)]
            front = [TokenSpan("class", is_special=True)] * has_class_token
            return (*front, *patches), PatchGrid(side, side, has_class_token)
    return (), None


def trace_input(model: LoadedModel, text: str) -> TraceInput:
    """A text, or the picture of that path, whatever the model reads."""
    return image_input(model, Path(text)) if model.config.model.reads_images else text_input(model, text)


def trace(
    model: LoadedModel,
    given: TraceInput,
    target: str | None,
    settings: DecodingConfig,
    *,
    tokens: Sequence[int] | None = None,
    hypothesis: int = 0,
    arithmetic: bool = False,
    cancellation: Cancellation | None = None,
) -> Trace:
    """What happens inside while the model reads an input and writes the target, or the best that search finds.

    `tokens` are written exactly as they are, without an end behind them; `hypothesis` is which of the found ones is
    looked at; `arithmetic` keeps queries, keys and values too. Raises RequestCancelledError if `cancellation` is set
    before the search has ended.
    """
    if target is not None and tokens is not None:
        raise InspectionError("expected a target or tokens, got both; leave one out")
    if tokens is not None:
        _check_known(model, tokens)
    if hasattr(model.network, "backbone"):
        return _trace_reader(model, given, _answers(model, target, tokens), arithmetic)
    searched = SearchOutput()
    if target is not None:
        outputs = target_ids(model, target)
    elif tokens is not None:
        outputs = list(tokens)
    else:
        searched = search(model, given, settings, hypothesis, cancellation)
        found = searched.hypotheses[hypothesis]
        outputs = [*found.tokens, *[model.config.model.eos_id] * (found.finish_reason == "end")]
    return _trace_writer(model, given, outputs, searched, arithmetic)


def target_ids(model: LoadedModel, target: str) -> list[int]:
    """The ids of a text that is to be written, with its end; refuses what the tokenizer cannot spell."""
    task = get_task(model.config.task)
    [ids] = task.codec.encode(model.tokenizer.target, [target])
    if model.tokenizer.target.unk_id in ids:
        raise DataError(
            f"the target {target!r} has characters or words that the tokenizer does not know; leave them out"
        )
    return [*ids, model.config.model.eos_id]


def _check_known(model: LoadedModel, tokens: Sequence[int]) -> None:
    count = model.config.model.num_labels or model.config.model.vocab_size
    if not tokens or not all(0 <= token < count for token in tokens):
        raise InspectionError(f"expected one or more tokens from 0 to {count - 1}, got {list(tokens)}")


def _answers(model: LoadedModel, target: str | None, tokens: Sequence[int] | None) -> Sequence[int] | None:
    """What a reader is taken to have answered: the label that was named, or numbers of labels or pieces."""
    if target is None:
        return tokens
    labels = list(model.config.labels)
    if model.config.model.head != "classification":
        raise InspectionError(f"a model for the task {model.config.task} writes no target; leave it out")
    if target not in labels:
        raise InspectionError(f"expected one of the labels {', '.join(labels)} as target, got {target!r}")
    return [labels.index(target)]


class _Tree:
    """An observer that keeps everything."""

    def __init__(self) -> None:
        self.candidates: list[Candidate] = []

    def observe(self, candidate: Candidate) -> None:
        """One more."""
        self.candidates.append(candidate)


def search(
    model: LoadedModel,
    given: TraceInput,
    settings: DecodingConfig,
    hypothesis: int = 0,
    cancellation: Cancellation | None = None,
) -> SearchOutput:
    """Return the hypotheses of one input, found by the model's own engine, and the tree of the search."""
    generator, config, tree = model.generator, model.config.model, _Tree()
    first_RT, _ = generator.start(generator.encode(given.sources), 1)
    room = config.max_positions - first_RT.shape[1] + 1
    limit = max(1, min(settings.max_output_length(given.length), room))
    if settings.min_length > limit:
        raise InspectionError(f"decoding.min_length={settings.min_length} is more than the limit of {limit}; lower it")
    asked = resolve_constraints(settings, model.tokenizer.target)
    n_best = settings.beam_size if settings.method == "search" else max(1, hypothesis + 1)
    ids, constraints = (config.eos_id, config.pad_id), [asked] if asked else ()
    batch = SearchBatch(generator, given.sources, settings, [limit], *ids, n_best, tree, constraints)
    [found] = run_search(replace(batch, cancellations=[cancellation]))
    if cancellation is not None:
        cancellation.raise_if_cancelled()
    if not 0 <= hypothesis < len(found.hypotheses):
        raise InspectionError(
            f"search found {len(found.hypotheses)} hypotheses, counted from 0; there is no hypothesis {hypothesis}"
        )
    return SearchOutput(tuple(found.hypotheses), tuple(tree.candidates), hypothesis)


@dataclass(frozen=True)
class ForcedRun:
    """A pass of a network over an input and what it wrote."""

    inputs: list[int]  # what the decoder was given; nothing for one that only reads
    logits_TV: Tensor
    is_prompt: bool  # whether the source is what the decoder was given


def run(network: Any, src: Tensor, outputs: Sequence[int]) -> ForcedRun:
    """One pass, in which a network that writes is made to write the outputs; of a reader they are not asked."""
    if hasattr(network, "backbone"):
        hidden = network(src)
        if not hasattr(network, "logits"):  # a model that embeds
            return ForcedRun([], hidden.new_zeros(0, 1), is_prompt=False)
        logits = network.logits(hidden)
        return ForcedRun([], logits[0].view(-1, logits.shape[-1]), is_prompt=False)
    first_RT, state = network.start(network.encode(src), 1)
    behind_RT = torch.tensor([list(outputs[:-1])], dtype=first_RT.dtype)
    tokens_RT = torch.cat((first_RT, behind_RT), 1)
    limit = network.config.max_positions
    if tokens_RT.shape[1] > limit:
        raise DataError(f"the target makes {tokens_RT.shape[1]:,} pieces, the model takes {limit:,}; shorten it")
    step = network.step(tokens_RT, state)  # through the seam that search uses, over all tokens at once
    is_prompt = first_RT.shape == src.shape and bool((first_RT == src).all())
    return ForcedRun(tokens_RT[0].tolist(), step.logits_RTV[0], is_prompt)


def need_answers(count: int) -> None:
    """Refuses questions about probabilities to a model that gives none."""
    if not count:
        raise InspectionError(
            "a model that embeds gives a vector and no answer, whose probability this asks for; look at its attention, "
            "or train --task classify --from it"
        )


def log_probs_of(network: Any, src: Tensor, outputs: Sequence[int]) -> Tensor:
    """log_probs_T of these outputs, whatever stands before them in a prompt."""
    logits_TV = run(network, src, outputs).logits_TV
    need_answers(len(logits_TV))
    log_probs_TV = logits_TV.double().log_softmax(-1)[-len(outputs) :]
    return log_probs_TV[range(len(outputs)), list(outputs)]


def _trace_writer(
    model: LoadedModel, given: TraceInput, outputs: Sequence[int], searched: SearchOutput, arithmetic: bool
) -> Trace:
    recorder = Recorder(model.network)
    with torch.inference_mode():
        forced = run(recorder.network, given.src, outputs)
    task, tokenizer = get_task(model.config.task), model.tokenizer.target
    following = [*forced.inputs[1:], outputs[-1]]
    places = target_token_spans(tokenizer, task.codec.detokenize, [forced.inputs[0], *following])
    return Trace(
        source_text=given.text,
        target_text=task.codec.detokenize(tokenizer, [forced.inputs[0], *following]),
        source=() if forced.is_prompt else given.places,
        inputs=places[:-1],
        outputs=places[1:],
        num_given=len(following) - len(outputs),
        grid=given.grid,
        **_seen(recorder, forced.logits_TV, following, names(model), arithmetic),
        hypotheses=searched.hypotheses,
        tree=tuple(TreeNode(one, tokenizer.token(one.token)) for one in searched.tree),
        chosen=searched.chosen,
    )


def _trace_reader(model: LoadedModel, given: TraceInput, answers: Sequence[int] | None, arithmetic: bool) -> Trace:
    recorder = Recorder(model.network)
    with torch.inference_mode():
        logits_TV = run(recorder.network, given.src, ()).logits_TV
    chosen = logits_TV.argmax(-1).tolist() if answers is None else list(answers)
    if len(chosen) != len(logits_TV):
        raise InspectionError(f"expected {len(logits_TV)} answers, one a place, got {len(chosen)}")
    called = names(model)
    return Trace(
        source_text=given.text,
        target_text=" ".join(called[index] for index in chosen),
        source=given.places,
        inputs=(),
        outputs=tuple(TokenSpan(called[index], index) for index in chosen),
        num_given=0,
        grid=given.grid,
        **_seen(recorder, logits_TV, chosen, called, arithmetic),
    )


def names(model: LoadedModel) -> list[str]:
    """What the columns of the logits stand for."""
    if model.config.model.num_labels:
        return list(model.config.labels)
    return [model.tokenizer.target.token(index) for index in range(model.tokenizer.target.vocab_size)]


def _seen(
    recorder: Recorder, logits_TV: Tensor, chosen: Sequence[int], called: Sequence[str], arithmetic: bool
) -> dict[str, Any]:
    """The fields of a trace that are tensors of the run."""
    candidates, token_log_probs = best(logits_TV, chosen, called)
    return {
        "attention": tuple(_attention(one, arithmetic) for one in recorder.looked),
        "streams": tuple(ResidualStream(one.name, one.layer, one.states_BTD[0].numpy()) for one in recorder.streamed),
        "logits_TV": logits_TV.numpy(),
        "candidates": candidates,
        "token_log_probs": token_log_probs,
    }


def best(
    logits_TV: Tensor, chosen: Sequence[int], called: Sequence[str]
) -> tuple[tuple[tuple[TokenProb, ...], ...], tuple[float, ...]]:
    """The best candidates for each output, best first, and the log-probabilities of those that were chosen."""
    log_probs_TV = logits_TV.double().log_softmax(-1)
    top = log_probs_TV.topk(min(NUM_CANDIDATES, log_probs_TV.shape[1]))
    candidates = tuple(
        tuple(TokenProb(index, called[index], value) for index, value in zip(indices, values, strict=True))
        for indices, values in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    )
    return candidates, tuple(log_probs_TV[range(len(chosen)), list(chosen)].tolist())


def _attention(one: RecordedAttention, arithmetic: bool) -> TracedAttention:
    made = None
    if arithmetic:
        q_HTK, k_HSK, v_HSE = (each[0].numpy() for each in (one.q_BHTK, one.k_BHSK, one.v_BHSE))
        bias_HTS = None if one.bias_BHTS is None else one.bias_BHTS[0].numpy()
        made = AttentionArithmetic(q_HTK, k_HSK, v_HSE, one.scale, bias_HTS)
    allowed_TS = one.allowed_BHTS[0, 0].numpy()
    return TracedAttention(one.name, one.layer, one.weights_BHTS[0].numpy(), allowed_TS, made)  # type: ignore[arg-type]
