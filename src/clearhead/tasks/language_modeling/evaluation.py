"""Evaluation of language models (S8): the perplexity of documents, in windows that slide over them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.config import Config, DecodingConfig
from clearhead.data.readers.documents import Document, load_documents
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.engine import ScoringEngine
from clearhead.evaluation.perplexity import PerplexityReport
from clearhead.tasks.language_modeling.inference import context_length
from clearhead.tasks.task import LoadedModel, Log


@dataclass(frozen=True)
class NextTokenBatch:
    """Input tokens, and for each the token that follows it: the target. Padding is no target."""

    inputs: list[int]
    targets: list[int]

    def windows(self, window: int, stride: int, pad_id: int) -> Iterator["NextTokenBatch"]:
        """Yield windows of the inputs; each target is in exactly one of them, in the others it is padding.

        Windows begin every `stride` tokens, and a target belongs to the first one that contains it: after the first
        window it is predicted from at least `window - stride` tokens before it.
        """
        done = 0
        for begin in range(0, len(self.inputs), stride):
            end = min(begin + window, len(self.inputs))
            targets = [pad_id] * (done - begin) + self.targets[done:end]
            yield NextTokenBatch(self.inputs[begin:end], targets)
            done = end
            if done == len(self.inputs):
                return


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, tell: Log) -> PerplexityReport:
    """Return the perplexity; after the first window of a document every token has half a window of context or more."""
    config, tokenizer = model.config, model.tokenizer
    documents = load_documents(paths, config.data.document_unit).records
    ids = tokenizer.encode_batch([document.text for document in documents])
    stride = max(1, context_length(config) // 2)

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
    """Return the perplexity of documents, in windows of the model's context that begin every `stride` tokens.

    `total_nll` returns the negative log-likelihood of all targets of some windows.
    """
    window, together = context_length(config), config.data.attend_across_documents
    texts = next_token_batches(ids, tokenizer, together)
    return PerplexityReport(
        nll=total_nll([row for text in texts for row in text.windows(window, stride, tokenizer.pad_id)]),
        tokens=sum(len(text.targets) for text in texts),
        unknown=sum(list(each).count(tokenizer.unk_id) for each in ids),
        characters=sum(len(document.text) for document in documents),
        bytes=sum(len(document.text.encode()) for document in documents),
        window=window,
        stride=stride,
        documents="together" if together else "apart",
    )


def next_token_batches(
    documents: Sequence[Sequence[int]], tokenizer: Tokenizer, together: bool
) -> list[NextTokenBatch]:
    """Return the predictions of each document, or of all documents concatenated."""
    start, end = tokenizer.bos_id, tokenizer.eos_id
    apart = [NextTokenBatch([start, *ids], [*ids, end]) for ids in documents]
    if not together:
        return apart
    inputs = [token for each in apart for token in each.inputs]
    return [NextTokenBatch(inputs, [token for each in apart for token in each.targets])]


def total_target_nll(engine: ScoringEngine, rows: Sequence[NextTokenBatch], pad_id: int) -> float:
    """Return the negative log-likelihood of all targets, computed by an engine."""
    scores = engine.score([row.inputs for row in rows], [row.targets for row in rows])
    total = 0.0
    for row, (log_probs_T, _) in zip(rows, scores, strict=True):
        total -= sum(float(one) for one, target in zip(log_probs_T, row.targets, strict=True) if target != pad_id)
    return total
