"""Language models (S8): continuation of prompts, and perplexity of documents."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clearhead.config import Config, DecodingConfig
from clearhead.data.readers.documents import Document, load_documents
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.word_indices import is_wordlike
from clearhead.decoding.grid_beam_search import LETTER
from clearhead.decoding.requests import Constraints, Hypothesis, Request
from clearhead.engines import constrained_decoding
from clearhead.engines.engine import Engine, ScoringEngine
from clearhead.errors import DecodingError
from clearhead.evaluation.perplexity import PerplexityReport
from clearhead.tasks.generated_text import GeneratedText, IncrementalDetokenizer, StopStrings
from clearhead.tasks.lexical_constraints import find_unmet_constraints, resolve_constraints
from clearhead.tasks.long_texts import LongTexts
from clearhead.tasks.task import LoadedModel, Log
from clearhead.tasks.text_codec import TextCodec, max_training_tokens


class PromptCodec(TextCodec):
    """<s> text: the input of language models. Prompts begin like documents, but have no end token."""

    def add_special_tokens(self, tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
        """Return the ids with the special tokens of the network's input."""
        return [tokenizer.bos_id, *ids]


CODEC = PromptCodec()


def generate_texts(
    model: LoadedModel,
    prompts: Sequence[str],
    n_best: int,
    settings: DecodingConfig,
    engine: Engine,
    first_sample: int = 0,
    first_line: int = 0,
    long_texts: LongTexts | None = None,
) -> list[list[GeneratedText]]:
    """Return the `n_best` continuations of each prompt, best first.

    With sampling they are the samples number `first_sample`, `first_sample` + 1, ... of the seed, in this order. A
    prompt that is too long raises DecodingError; if `long_texts` skips it, its continuations are empty texts. Errors
    name a prompt by its line, counted from `first_line`, or by its number if `first_line` is 0.
    """
    limit, tally = max_training_tokens(model.config) - 1, long_texts or LongTexts("stop")
    requests: list[Request | None] = []
    for index, ids in enumerate(model.tokenizer.encode_batch(prompts)):
        line, name = first_line + index, f"prompt {index + 1}" if len(prompts) > 1 else "the prompt"
        if len(ids) > limit and tally.policy == "skip":
            tally.record(line, len(ids), limit)
            requests.append(None)
            continue
        name = f"line {line}" if first_line else name
        requests.append(build_request(model, ids, settings, first_sample, n_best, name))
    answers = iter(constrained_decoding.decode(engine, [request for request in requests if request], settings))
    return [
        [_to_text(model, request, hypothesis, settings) for hypothesis in next(answers)]
        if request
        else [GeneratedText.skipped()] * n_best
        for request in requests
    ]


def stream(
    model: LoadedModel, prompt: str, settings: DecodingConfig, sample: int = 0
) -> Generator[str, None, GeneratedText]:
    """Yield the best continuation of a prompt in parts as soon as each is final; return the whole result.

    `sample` is the number of the sample among all samples of the seed. An empty prompt starts a document.
    """
    engine, tokenizer = model.generating_engine, model.tokenizer
    request = build_request(model, tokenizer.encode(prompt).ids, settings, sample)
    detokenizer = IncrementalDetokenizer(tokenizer, request.source, settings.sampling.stop)
    search = constrained_decoding.stream_tokens(engine, request, settings)
    while True:
        try:
            tokens = next(search)
        except StopIteration as stop:
            best: Hypothesis = stop.value
            break
        for token in tokens:
            if text := detokenizer.add(token):
                yield text
    if text := detokenizer.finish():
        yield text
    return _to_text(model, request, best, settings)


def alternatives(
    model: LoadedModel, prompt: str, position: int, count: int, settings: DecodingConfig
) -> list[GeneratedText]:
    """Return the `count` most probable tokens at a position of the best text, each with its best continuation."""
    engine, tokenizer = model.generating_engine, model.tokenizer
    request = build_request(model, tokenizer.encode(prompt).ids, settings)
    hypotheses = constrained_decoding.find_alternatives(engine, request, position, count, settings)
    return [_to_text(model, request, hypothesis, settings) for hypothesis in hypotheses]


def build_request(
    model: LoadedModel,
    ids: Sequence[int],
    settings: DecodingConfig,
    first_sample: int = 0,
    n_best: int = 1,
    name: str = "the prompt",
) -> Request:
    """Return the request of a prompt; raise DecodingError if it fills the whole context window."""
    tokenizer, context, sampling = model.tokenizer, max_training_tokens(model.config), settings.sampling
    if len(ids) >= context:
        raise DecodingError(f"{name} has {len(ids):,} tokens, the model accepts {context - 1:,}; shorten it")
    prompt = tuple(ids) if ids and not sampling.add_start_token else (tokenizer.bos_id, *ids)
    constraints = resolve_constraints(settings, tokenizer) or Constraints()
    include = constraints.include
    if include.num_tokens and any(map(is_wordlike, tokenizer.decode(ids)[-1:])):
        # The prompt ends with a letter or digit, so an included word must not begin directly after it.
        include = replace(include, lead=(LETTER,))
    constraints = replace(
        constraints,
        prompt=prompt,
        include=include,
        is_stopped=StopStrings(tokenizer, tuple(ids), sampling.stop) if sampling.stop else None,
        first_sample=first_sample,
    )
    return Request(prompt, n_best, constraints, limit=sampling.max_tokens, name=name)


def _to_text(model: LoadedModel, request: Request, hypothesis: Hypothesis, settings: DecodingConfig) -> GeneratedText:
    """Return the text of a hypothesis, up to a stop string."""
    tokenizer = model.tokenizer
    detokenizer = IncrementalDetokenizer(tokenizer, request.source, settings.sampling.stop)
    text = "".join([*map(detokenizer.add, hypothesis.tokens), detokenizer.finish()])
    unmet = find_unmet_constraints(settings, tokenizer, text, tokenizer.decode(request.source))
    return GeneratedText.from_hypothesis(hypothesis, text, tokenizer, unmet)


@dataclass(frozen=True)
class NextTokenBatch:
    """Input tokens, each with the next token as its target. Padding in `targets` is ignored."""

    inputs: list[int]
    targets: list[int]

    def windows(self, window: int, stride: int, pad_id: int) -> Iterator["NextTokenBatch"]:
        """Yield windows of the inputs; each target is in exactly one window, and padding in the others.

        Windows begin every `stride` tokens, and a target belongs to the first window that contains it. After the first
        window, each target is therefore predicted from at least `window - stride` preceding tokens.
        """
        num_predicted = 0
        for begin in range(0, len(self.inputs), stride):
            end = min(begin + window, len(self.inputs))
            targets = [pad_id] * (num_predicted - begin) + self.targets[num_predicted:end]
            yield NextTokenBatch(self.inputs[begin:end], targets)
            num_predicted = end
            if num_predicted == len(self.inputs):
                return


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, log: Log) -> PerplexityReport:
    """Return the perplexity with a sliding window that moves by half its length."""
    config, tokenizer = model.config, model.tokenizer
    documents = load_documents(paths, config.data.document_unit).records
    ids = tokenizer.encode_batch([document.text for document in documents])
    stride = max(1, max_training_tokens(config) // 2)

    def total_nll(rows: Sequence[NextTokenBatch]) -> float:
        return total_target_nll(model.scoring_engine, rows, config.model.pad_id)

    return score_documents(total_nll, config, tokenizer, documents, ids, stride)


def score_documents(
    total_nll: Callable[[Sequence[NextTokenBatch]], float],
    config: Config,
    tokenizer: Tokenizer,
    documents: Sequence[Document],
    ids: Sequence[Sequence[int]],
    stride: int,
) -> PerplexityReport:
    """Return the perplexity of documents, computed in windows of the model's context that begin every `stride` tokens.

    `total_nll` returns the negative log-likelihood summed over all targets of the windows.
    """
    window, are_joined = max_training_tokens(config), config.data.attend_across_documents
    batches = next_token_batches(ids, tokenizer, are_joined)
    return PerplexityReport(
        nll=total_nll([part for batch in batches for part in batch.windows(window, stride, tokenizer.pad_id)]),
        tokens=sum(len(batch.targets) for batch in batches),
        unknown=sum(list(document).count(tokenizer.unk_id) for document in ids),
        characters=sum(len(document.text) for document in documents),
        bytes=sum(len(document.text.encode()) for document in documents),
        window=window,
        stride=stride,
        documents="together" if are_joined else "apart",
    )


def next_token_batches(
    documents: Sequence[Sequence[int]], tokenizer: Tokenizer, are_joined: bool
) -> list[NextTokenBatch]:
    """Return the inputs and targets of each document, or of all documents concatenated."""
    start, end = tokenizer.bos_id, tokenizer.eos_id
    batches = [NextTokenBatch([start, *ids], [*ids, end]) for ids in documents]
    if not are_joined:
        return batches
    inputs = [token for batch in batches for token in batch.inputs]
    return [NextTokenBatch(inputs, [token for batch in batches for token in batch.targets])]


def total_target_nll(engine: ScoringEngine, rows: Sequence[NextTokenBatch], pad_id: int) -> float:
    """Return the negative log-likelihood summed over all targets except padding, computed by an engine."""
    scores = engine.score([row.inputs for row in rows], [row.targets for row in rows])
    total = 0.0
    for row, (log_probs_T, _) in zip(rows, scores, strict=True):
        pairs = zip(log_probs_T, row.targets, strict=True)
        total -= sum(float(log_prob) for log_prob, target in pairs if target != pad_id)
    return total
