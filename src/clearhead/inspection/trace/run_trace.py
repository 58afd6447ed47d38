"""Tracing of one input: search, forced pass with an activation recorder, and collection of the results in a `Trace`.

T output positions, V vocabulary or labels
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.errors import DataError, InspectionError
from clearhead.inspection.trace.activation_recorder import ActivationRecorder, RecordedAttention
from clearhead.inspection.trace.forced_pass import forced_pass, has_decoder
from clearhead.inspection.trace.token_spans import target_token_spans
from clearhead.inspection.trace.trace_input import TraceInput
from clearhead.inspection.trace.trace_search import SearchTrace, trace_search, with_end_token
from clearhead.inspection.trace.trace_types import (
    AttentionArithmetic,
    ResidualStream,
    TokenProb,
    TokenSpan,
    Trace,
    TracedAttention,
    TreeNode,
)
from clearhead.runtime.cancellation import Cancellation
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import LoadedModel

NUM_CANDIDATES = 10


def run_trace(
    model: LoadedModel,
    trace_input: TraceInput,
    target: str | None,
    settings: DecodingConfig,
    *,
    tokens: Sequence[int] | None = None,
    hypothesis: int = 0,
    arithmetic: bool = False,
    cancellation: Cancellation | None = None,
) -> Trace:
    """Return the trace of a model on one input.

    The output is forced by `target` (a text or a label) or by `tokens` (ids; no end token is added). Without either,
    it is found by search, or predicted by a model without a decoder; `hypothesis` is then the index of the traced
    search result. `arithmetic` adds queries, keys and values to the trace. Raises RequestCancelledError if
    `cancellation` is set before the search has ended.
    """
    if target is not None and tokens is not None:
        raise InspectionError("expected a target or tokens, got both; leave one out")
    if tokens is not None:
        _check_tokens(model, tokens)
    if not has_decoder(model.network):
        return _trace_encoder(model, trace_input, _forced_labels(model, target, tokens), arithmetic)
    if target is not None:
        return _trace_decoder(model, trace_input, target_ids(model, target), None, 0, arithmetic)
    if tokens is not None:
        return _trace_decoder(model, trace_input, tokens, None, 0, arithmetic)
    search = trace_search(model, trace_input, settings, hypothesis, cancellation)
    outputs = with_end_token(model, search.hypotheses[hypothesis])
    return _trace_decoder(model, trace_input, outputs, search, hypothesis, arithmetic)


def target_ids(model: LoadedModel, target: str) -> list[int]:
    """Return the token ids of a target text, with the end token; raise DataError for unknown tokens."""
    task = get_task(model.config.task)
    [ids] = task.codec.encode(model.tokenizer.target, [target])
    if model.tokenizer.target.unk_id in ids:
        raise DataError(
            f"the target {target!r} contains characters or words that are not in the vocabulary; leave them out"
        )
    return [*ids, model.config.model.eos_id]


def output_names(model: LoadedModel) -> list[str]:
    """Return the names of the columns of the logits: labels, or tokens of the vocabulary."""
    if model.config.model.num_labels:
        return list(model.config.labels)
    return [model.tokenizer.target.token(token) for token in range(model.tokenizer.target.vocab_size)]


def rank_candidates(
    logits_TV: Tensor, outputs: Sequence[int], names: Sequence[str]
) -> tuple[tuple[tuple[TokenProb, ...], ...], tuple[float, ...]]:
    """Return the most probable candidates for each output, best first, and the log-probabilities of the outputs."""
    log_probs_TV = logits_TV.double().log_softmax(-1)
    top = log_probs_TV.topk(min(NUM_CANDIDATES, log_probs_TV.shape[1]))
    candidates = tuple(
        tuple(TokenProb(token, names[token], log_prob) for token, log_prob in zip(tokens, log_probs, strict=True))
        for tokens, log_probs in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    )
    return candidates, tuple(log_probs_TV[range(len(outputs)), list(outputs)].tolist())


def _check_tokens(model: LoadedModel, tokens: Sequence[int]) -> None:
    """Raise InspectionError if there are no tokens, or one of them is not an id of a label or vocabulary entry."""
    num_ids = model.config.model.num_labels or model.config.model.vocab_size
    if not tokens or not all(0 <= token < num_ids for token in tokens):
        raise InspectionError(f"expected one or more tokens from 0 to {num_ids - 1}, got {list(tokens)}")


def _forced_labels(model: LoadedModel, target: str | None, tokens: Sequence[int] | None) -> Sequence[int] | None:
    """Return the forced label ids of a model without a decoder, or None if its predictions are to be traced.

    Raises InspectionError for an unknown label, and for a target of a model that is not a classifier.
    """
    if target is None:
        return tokens
    labels = list(model.config.labels)
    if model.config.model.head != "classification":
        raise InspectionError(f"a model for the task {model.config.task} accepts no target; leave it out")
    if target not in labels:
        raise InspectionError(f"expected one of the labels {', '.join(labels)} as target, got {target!r}")
    return [labels.index(target)]


def _trace_decoder(
    model: LoadedModel,
    trace_input: TraceInput,
    outputs: Sequence[int],
    search: SearchTrace | None,
    hypothesis: int,
    arithmetic: bool,
) -> Trace:
    """Return the trace of a model with a decoder that is forced to the given outputs."""
    recorder = ActivationRecorder(model.network)
    with torch.inference_mode():
        forced = forced_pass(recorder.network, trace_input.src, outputs)
    task, tokenizer = get_task(model.config.task), model.tokenizer.target
    all_outputs = [*forced.inputs[1:], outputs[-1]]
    ids = [forced.inputs[0], *all_outputs]
    spans = target_token_spans(tokenizer, task.codec.detokenize, ids)
    tree = () if search is None else search.tree
    return Trace(
        source_text=trace_input.text,
        target_text=task.codec.detokenize(tokenizer, ids),
        source=() if forced.is_prompt else trace_input.positions,
        inputs=spans[:-1],
        outputs=spans[1:],
        prompt_length=len(all_outputs) - len(outputs),
        grid=trace_input.grid,
        **_recorded_fields(recorder, forced.logits_TV, all_outputs, output_names(model), arithmetic),
        hypotheses=() if search is None else search.hypotheses,
        tree=tuple(TreeNode(candidate, tokenizer.token(candidate.token)) for candidate in tree),
        hypothesis_index=None if search is None else hypothesis,
    )


def _trace_encoder(
    model: LoadedModel, trace_input: TraceInput, labels: Sequence[int] | None, arithmetic: bool
) -> Trace:
    """Return the trace of a model without a decoder, for the given labels or for its own predictions."""
    recorder = ActivationRecorder(model.network)
    with torch.inference_mode():
        logits_TV = forced_pass(recorder.network, trace_input.src, ()).logits_TV
    outputs = logits_TV.argmax(-1).tolist() if labels is None else list(labels)
    if len(outputs) != len(logits_TV):
        raise InspectionError(f"expected {len(logits_TV)} tokens, one per position, got {len(outputs)}")
    names = output_names(model)
    return Trace(
        source_text=trace_input.text,
        target_text=" ".join(names[output] for output in outputs),
        source=trace_input.positions,
        inputs=(),
        outputs=tuple(TokenSpan(names[output], output) for output in outputs),
        prompt_length=0,
        grid=trace_input.grid,
        **_recorded_fields(recorder, logits_TV, outputs, names, arithmetic),
    )


def _recorded_fields(
    recorder: ActivationRecorder, logits_TV: Tensor, outputs: Sequence[int], names: Sequence[str], arithmetic: bool
) -> dict[str, Any]:
    """Return the fields of a trace that are computed from the recorded forward pass."""
    candidates, token_log_probs = rank_candidates(logits_TV, outputs, names)
    return {
        "attention": tuple(_traced_attention(recorded, arithmetic) for recorded in recorder.attention),
        "residual_streams": tuple(
            ResidualStream(recorded.name, recorded.layer, recorded.states_BTD[0].numpy())
            for recorded in recorder.residual_streams
        ),
        "logits_TV": logits_TV.numpy(),
        "candidates": candidates,
        "token_log_probs": token_log_probs,
    }


def _traced_attention(recorded: RecordedAttention, with_arithmetic: bool) -> TracedAttention:
    arithmetic = None
    if with_arithmetic:
        q_HTK, k_HSK, v_HSE = (tensor[0].numpy() for tensor in (recorded.q_BHTK, recorded.k_BHSK, recorded.v_BHSE))
        bias_HTS = None if recorded.bias_BHTS is None else recorded.bias_BHTS[0].numpy()
        arithmetic = AttentionArithmetic(q_HTK, k_HSK, v_HSE, recorded.scale, bias_HTS)
    return TracedAttention(
        recorded.name,  # type: ignore[arg-type]
        recorded.layer,
        recorded.weights_BHTS[0].numpy(),
        recorded.allowed_BHTS[0, 0].numpy(),
        arithmetic,
    )
