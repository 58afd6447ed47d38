"""Training of models that generate text from a source: batches, loss, and greedy decoding of validation examples.

N sentences, S source length, T target length, C channels, Y height, X width
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.config import Config, DecodingConfig, ModelConfig
from clearhead.data.batching import Indices, pad_rows, plan_batches
from clearhead.data.corpus.id_arrays import PairIds
from clearhead.data.corpus.sampling_weights import Repeats
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.requests import Hypothesis, NoOutputError, Request
from clearhead.engines import constrained_decoding
from clearhead.engines.torch_forward import device_of, evaluating, on_device
from clearhead.errors import ConfigError
from clearhead.evaluation.metrics import OutputCounts
from clearhead.model.loss import Loss, cross_entropy
from clearhead.tasks.engines import network_engine
from clearhead.tasks.trainable.baseline import Baseline
from clearhead.tasks.trainable.task import (
    NO_EXAMPLE,
    SAMPLE_LINES,
    Decode,
    ExampleTable,
    ExampleTask,
    Validation,
)

# Greedy output in validation has at most LENGTH_FACTOR times the source length plus EXTRA_TOKENS tokens. The limit does
# not depend on the reference, because poor models generate up to the limit and would get the right length from it.
EXTRA_TOKENS = 10
LENGTH_FACTOR = 1.5


@dataclass(frozen=True)
class Seq2SeqBatch:
    """Sources, decoder inputs (targets shifted right, after the start token), and targets with their end token."""

    src: Tensor
    """src_NS, each sentence with its end token, or images_NCYX."""
    tgt_in_NT: Tensor
    tgt_out_NT: Tensor


def collate(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], model: ModelConfig) -> Seq2SeqBatch:
    """Return the padded tensors of sources and targets, which are passed without start and end tokens."""
    ended = [[*source, model.eos_id] for source in sources]
    return collate_targets(torch.from_numpy(pad_rows(ended, model.pad_id)), targets, model)


def collate_targets(src: Tensor, targets: Sequence[Sequence[int]], model: ModelConfig) -> Seq2SeqBatch:
    """Return the batch of a source tensor and of targets, which are passed without start and end tokens."""
    shifted = [[model.decoder_start_id, *target] for target in targets]
    ended = [[*target, model.eos_id] for target in targets]
    tgt_in_NT, tgt_out_NT = (torch.from_numpy(pad_rows(rows, model.pad_id)) for rows in (shifted, ended))
    return Seq2SeqBatch(src, tgt_in_NT, tgt_out_NT)


def collate_pairs(pairs: PairIds, indices: Indices, model: ModelConfig) -> Seq2SeqBatch:
    """Return the tensors of these pairs."""
    return collate(
        [pairs.source[index].tolist() for index in indices],
        [pairs.target[index].tolist() for index in indices],
        model,
    )


def pair_batches(pairs: PairIds, model: ModelConfig, batch_tokens: int) -> Iterator[Seq2SeqBatch]:
    """Yield batches of all pairs; a batch contains pairs of similar length."""
    for indices in plan_batches(pairs.source.lengths + 1, pairs.target.lengths + 1, batch_tokens, seed=0, epoch=0):
        yield collate_pairs(pairs, indices, model)


def seq2seq_loss(model: Any, batch: Seq2SeqBatch, pad_id: int, smoothing: float) -> Loss:
    """Return the cross-entropy under teacher forcing, summed over the target tokens."""
    hidden_NTD = model(batch.src, batch.tgt_in_NT)
    return cross_entropy(hidden_NTD, model.output.weight, batch.tgt_out_NT, pad_id, smoothing, model.output.bias)


def mean_nll(model: Any, batches: Iterable[Seq2SeqBatch], pad_id: int) -> float:
    """Return the mean negative log-likelihood per target token, end tokens included, without label smoothing."""
    total, count = 0.0, 0
    with evaluating(model):
        for batch in batches:
            loss = seq2seq_loss(model, on_device(batch, device_of(model)), pad_id, 0.0)
            total, count = total + float(loss.nll), count + loss.tokens
    return total / count


@dataclass(frozen=True)
class DecodingScore:
    """Score of greedy outputs in validation."""

    value: float
    signature: str
    example: tuple[str, str, str]
    outputs: OutputCounts | None = None


class Seq2SeqTask(ExampleTask[Seq2SeqBatch]):
    """Base of tasks that learn to generate a text from a source, over one training and one validation set."""

    def __init__(
        self, config: Config, tokenizer: Tokenizer, examples: ExampleTable, num_valid: int, batch_tokens: int = 0,
        repeats_N: Repeats | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, examples, num_valid, batch_tokens, repeats_N)
        self.tokenizer = tokenizer

    def loss(self, model: Any, batch: Seq2SeqBatch) -> Loss:
        """Return the smoothed cross-entropy, summed over the target tokens."""
        return seq2seq_loss(model, batch, self.tokenizer.pad_id, self.config.training.label_smoothing)

    def validate(self, model: Any, decode: Decode = "always") -> Validation:
        """Return the loss over all validation examples, and the score of greedy outputs for the first ones."""
        loss, baseline = self.valid_nll(model), self.baseline
        lines = min(self.num_examples()[1], self.config.training.validate_lines)
        count = lines_to_decode(decode, loss, baseline, lines)
        if not count:
            return Validation(loss, None, self.score_name, "", NO_EXAMPLE, baseline)
        score = self.score_outputs(model, count)
        return Validation(loss, score.value, self.score_name, score.signature, score.example, baseline, score.outputs)

    @property
    @abstractmethod
    def score_name(self) -> str:
        """Name of the validation score."""

    @abstractmethod
    def valid_nll(self, model: Any) -> float:
        """Return the mean negative log-likelihood per token of the validation targets."""

    @abstractmethod
    def score_outputs(self, model: Any, count: int) -> DecodingScore:
        """Return the score of greedy outputs for the first `count` validation examples."""


def require_text_to_text(config: Config) -> None:
    """Raise ConfigError for a network that does not generate text from text."""
    model = config.model
    if model.family == "decoder" or model.input == "image":
        source = "an image" if model.input == "image" else "no source"
        task = "caption" if model.input == "image" else "lm"
        raise ConfigError(f"the task {config.task} reads text, this network reads {source}; use --task {task}.")


def validation_decoding(factor: float = LENGTH_FACTOR) -> DecodingConfig:
    """Return greedy search with outputs of at most `factor` times the source length plus `EXTRA_TOKENS` tokens."""
    return DecodingConfig(beam_size=1, max_length=f"{factor:.3f}*input+{EXTRA_TOKENS}")


def lines_to_decode(decode: Decode, loss: float, baseline: Baseline, lines: int) -> int:
    """Return the number of validation examples to decode, which is at most `lines`."""
    if decode == "always" or loss < baseline.decoding_loss:
        return lines
    return min(lines, SAMPLE_LINES) if decode == "sample" else 0


def decode_examples(
    network: Any, sources: Sequence[Sequence[int]], eos_id: int, decoding: DecodingConfig
) -> list[tuple[int, ...]]:
    """Return the tokens of the best output for each source, both without start and end tokens."""
    return decode_requests([Request((*source, eos_id)) for source in sources], network, decoding)


def decode_requests(requests: Sequence[Request], network: Any, decoding: DecodingConfig) -> list[tuple[int, ...]]:
    """Return the tokens of the best output of each request; no tokens if the network has diverged."""
    answers: Sequence[list[Hypothesis]]
    try:
        answers = constrained_decoding.decode(network_engine(network), requests, decoding)
    except NoOutputError as error:
        answers = error.answers if len(error.answers) == len(requests) else [[] for _ in requests]
    return [hypotheses[0].tokens if hypotheses else () for hypotheses in answers]
