"""Encoder-decoder attention.

C3: the fixed context vector of plain seq2seq is a bottleneck that attention removes. BLEU by source length.
C4: attention weights are interpretable probabilities that align source and target words.

L layers, H heads, J target words, I source words
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clearhead.api import Model
from clearhead.evaluation.alignment import alignment_error_rate
from clearhead.evaluation.metrics import bleu
from clearhead.grammar import Example, split_words
from clearhead.inspection.analyses.word_attention import HeadAlignment, rank_heads_by_alignment, word_attention
from clearhead.inspection.trace.trace_types import Trace
from clearhead.study.harness.charts import Chart
from clearhead.study.harness.models_and_data import (
    FAST_MEASUREMENT,
    TOKENIZER,
    examples_of_length,
    grammar_examples,
    to_pairs,
    train_model,
    transformer_shape,
    write_examples,
)
from clearhead.study.harness.protocol import (
    DecisionRule,
    Findings,
    Numbers,
    Requirement,
    SeedNumbers,
    StudyContext,
    StudyInfo,
    bin_ticks,
    first_and_last,
)

WITHOUT, WITH = "without attention", "with attention"


def _decline(runs: SeedNumbers, condition: str) -> float:
    """Return the BLEU lost from the shortest sentences to the longest."""
    shortest, longest = first_and_last(runs[condition], "bleu")
    return shortest - longest


def _gain_on_longest(runs: SeedNumbers) -> float:
    """Return the BLEU gained by attention on the longest sentences."""
    return first_and_last(runs[WITH], "bleu")[1] - first_and_last(runs[WITHOUT], "bleu")[1]


# Readers notice a difference of five BLEU, but not of one. Attention "removes" the bottleneck if at most half of the
# decline remains.
BOTTLENECK_RULE = DecisionRule(
    (
        Requirement("without attention, quality declines with length (BLEU lost from the shortest to the longest)",
                    lambda runs: _decline(runs, WITHOUT), 5.0, 1.0,
                    "readers notice a difference of five BLEU, but not of one"),
        Requirement("on the longest sentences attention is better (BLEU)", _gain_on_longest, 5.0, 1.0,
                    "readers notice a difference of five BLEU, but not of one"),
        Requirement("attention removes at least half of the decline (fraction that remains)",
                    lambda runs: max(0.0, _decline(runs, WITH)) / max(1e-9, _decline(runs, WITHOUT)), 0.5, 0.9,
                    "removing half of the decline is an improvement, removing a tenth is not"),
    )
)  # fmt: skip
BOTTLENECK_INFO = StudyInfo(
    "bottleneck",
    "C3",
    "The fixed context vector of plain seq2seq is the bottleneck: quality declines with sentence length, and "
    "attention removes the decline",
    BOTTLENECK_RULE,
    "LSTMs of one width on the built-in grammar, with equal training time.",
)


@dataclass(frozen=True)
class BottleneckStudy:
    """An LSTM with and without attention."""

    info: StudyInfo = BOTTLENECK_INFO
    minutes: float = 10.0
    seeds: int = 3
    train_size: int = 20_000
    test_size: int = 100
    bins: tuple[tuple[int, int], ...] = ((3, 6), (7, 9), (10, 13), (14, 18), (19, 40))
    width: int = 128

    @property
    def conditions(self) -> tuple[str, ...]:
        """Without and with attention."""
        return (WITHOUT, WITH)

    @property
    def columns(self) -> Mapping[str, str]:
        """BLEU by source length."""
        return {f"bleu@{low}": f"BLEU, {low} to {high} words" for low, high in self.bins}

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Train one model and test it on each range of lengths."""
        file = write_examples(context.folder / "train.tsv", grammar_examples(self.train_size, seed))
        shape = {"family": "lstm", "attention": "none" if condition == WITHOUT else "additive",
                 "model_dim": self.width, "num_encoder_layers": 1, "num_decoder_layers": 1}  # fmt: skip
        model = train_model(context, file, seed, shape, tokenizer=TOKENIZER, decoding={"beam_size": 1})
        numbers = {}
        for low, high in self.bins:
            examples = examples_of_length(self.test_size, seed, "test", low, high)
            translations = [result.text for result in model.translate_pairs(to_pairs(examples))]
            numbers[f"bleu@{low}"] = bleu(translations, [example.target for example in examples]).value
        return numbers

    def charts(self, findings: Findings) -> list[Chart]:
        """Return BLEU by source length."""
        series = [findings.bin_series(kind, "bleu", self.bins) for kind in self.conditions]
        return [Chart("bottleneck", "LSTM with and without attention", "words in the source", "BLEU", series,
                      ticks=bin_ticks(self.bins))]  # fmt: skip


MODELS = ("lstm + attention", "transformer")
DIAGONAL, COOCCURRENCE = "diagonal", "co-occurrence"

# The best head is selected on one half of the sentences and measured on the other half, because the best of many heads
# would look good by chance. English and German have similar word order, so the diagonal is a strong baseline, and an
# error rate lower by 0.1 is a clear improvement. The co-occurrence baseline is a dictionary without context: attention
# should be at least as good.
ALIGNMENT_RULE = DecisionRule(
    (
        Requirement("attention weights are probabilities: each row sums to 1 (largest deviation)",
                    lambda runs: max(runs[kind]["sum_error"] for kind in MODELS), 1e-4, 1e-2, "float32 rounding"),
        Requirement("the best head of each model aligns better than the diagonal (reduction of the error rate, "
                    "weaker model)",
                    lambda runs: runs[DIAGONAL]["best"] - max(runs[kind]["best"] for kind in MODELS), 0.1, 0.0,
                    "0.1 is a clear reduction"),
        Requirement("the better model aligns at least as well as co-occurrence counts (reduction of the error rate)",
                    lambda runs: runs[COOCCURRENCE]["best"] - min(runs[kind]["best"] for kind in MODELS), 0.0, -0.1,
                    "equal or better; weights that are worse by 0.1 are not interpretable"),
    )
)  # fmt: skip
ALIGNMENT_INFO = StudyInfo(
    "alignment",
    "C4",
    "Attention weights are interpretable probabilities: they align source and target words",
    ALIGNMENT_RULE,
    "The best head was selected with the gold alignments of other sentences; the mean of all heads needs no selection.",
    light_conditions=(DIAGONAL, COOCCURRENCE),
)


@dataclass(frozen=True)
class AlignmentStudy:
    """Alignment error rate of every head against the gold alignments of the grammar."""

    info: StudyInfo = ALIGNMENT_INFO
    minutes: float = 15.0
    seeds: int = 2
    train_size: int = 20_000
    test_size: int = 200
    width: int = 128
    layers: int = 3

    @property
    def conditions(self) -> tuple[str, ...]:
        """Two baselines and two models."""
        return (DIAGONAL, COOCCURRENCE, *MODELS)

    @property
    def columns(self) -> Mapping[str, str]:
        """Alignment error rates (AER) and loss."""
        return {"best": "AER", "mean": "AER, mean of all heads", "worst": "AER, worst head", "nats": "nats per token"}

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Measure a baseline, or train one model and measure all of its heads."""
        train_examples, test_examples = (
            grammar_examples(self.train_size, seed),
            grammar_examples(self.test_size, seed, "test"),
        )
        half = len(test_examples) // 2
        selection, test = test_examples[:half], test_examples[half:]
        if condition == DIAGONAL:
            return {"best": _error_rate([diagonal_links(example) for example in test], test)}
        if condition == COOCCURRENCE:
            dictionary = CooccurrenceDictionary.count(train_examples)
            return {"best": _error_rate([dictionary.links(example) for example in test], test)}
        file = write_examples(context.folder / "train.tsv", train_examples)
        model = train_model(context, file, seed, self._shape(condition), share=FAST_MEASUREMENT, tokenizer=TOKENIZER)
        return _model_error_rates(model, selection, test)

    def _shape(self, condition: str) -> dict[str, Any]:
        if condition == "transformer":
            return transformer_shape(self.width, self.layers, self.layers)
        return {"family": "lstm", "model_dim": self.width, "attention": "additive", "bidirectional": True,
                "num_encoder_layers": 1, "num_decoder_layers": 1}  # fmt: skip

    def charts(self, findings: Findings) -> list[Chart]:
        """Return the error rates of the best head, the mean, the worst head and the baselines."""
        labels = {"best": "best head or baseline", "mean": "mean of all heads", "worst": "worst head"}
        series = [findings.condition_series(name, self.conditions, label) for name, label in labels.items()]
        return [Chart("alignment", "Alignment error rate against gold alignments (0 is best)", "", "error rate",
                      series, ticks=self.conditions, is_joined=False)]  # fmt: skip


Links = frozenset[tuple[int, int]]


def _error_rate(links: Sequence[Links], examples: Sequence[Example]) -> float:
    """Return the alignment error rate over a corpus."""
    predicted = {(index, *link) for index, sentence_links in enumerate(links) for link in sentence_links}
    gold = {(index, *link) for index, example in enumerate(examples) for link in example.alignment}
    return alignment_error_rate(predicted, gold)


def diagonal_links(example: Example) -> Links:
    """Link each target word to the source word at the same relative position."""
    sources, targets = (len(split_words(text)) for text in (example.source, example.target))
    return frozenset((round(j * (sources - 1) / max(1, targets - 1)), j) for j in range(targets))


@dataclass(frozen=True)
class CooccurrenceDictionary:
    """Numbers of sentence pairs that contain a source word, a target word, and both."""

    sources: Counter[str]
    targets: Counter[str]
    pairs: Counter[tuple[str, str]]

    @classmethod
    def count(cls, examples: Sequence[Example]) -> "CooccurrenceDictionary":
        """Count the words of a corpus."""
        counts = cls(Counter(), Counter(), Counter())
        for example in examples:
            source, target = set(split_words(example.source)), set(split_words(example.target))
            counts.sources.update(source)
            counts.targets.update(target)
            counts.pairs.update((source_word, target_word) for source_word in source for target_word in target)
        return counts

    def links(self, example: Example) -> Links:
        """Link each target word to the source word with the highest Dice coefficient, the first one if tied."""
        source, target = split_words(example.source), split_words(example.target)

        def dice(i: int, word: str) -> float:
            total = self.sources[source[i]] + self.targets[word]
            return 2 * self.pairs[source[i], word] / total if total else 0.0

        return frozenset(
            (max(range(len(source)), key=lambda i: dice(i, word)), j) for j, word in enumerate(target)
        )  # fmt: skip


def _rank_heads(traces: Sequence[Trace], examples: Sequence[Example]) -> list[HeadAlignment]:
    """Return the alignment of every single head (no layer means), the best head first."""
    alignments = rank_heads_by_alignment(
        [word_attention(trace) for trace in traces], [example.alignment for example in examples]
    )
    has_single_head = traces[0].layers("cross")[0].weights_HTS.shape[0] == 1
    return [alignment for alignment in alignments if alignment.head_ref.head is not None or has_single_head]


def _model_error_rates(model: Model, selection: Sequence[Example], test: Sequence[Example]) -> Numbers:
    """Return the test error rates of the head that is best on `selection`, of the worst head and of the mean."""
    selection_traces = [model.trace(example.source, example.target) for example in selection]
    best = _rank_heads(selection_traces, selection)[0].head_ref
    traces = [model.trace(example.source, example.target) for example in test]
    rates = {head.head_ref: head.error_rate for head in _rank_heads(traces, test)}
    sum_errors = [float(np.abs(layer.weights_HTS.sum(-1) - 1).max()) for trace in traces for layer in trace.attention]
    tokens = sum(len(trace.token_log_probs) for trace in traces)
    return {
        "best": rates[best],
        "worst": max(rates.values()),
        "mean": _error_rate([_mean_links(trace) for trace in traces], test),
        "sum_error": max(sum_errors),
        "nats": -sum(trace.log_prob for trace in traces) / tokens,
    }


def _mean_links(trace: Trace) -> Links:
    attention = word_attention(trace)
    mean_LHJI = attention.weights_LHJI.mean((0, 1), keepdims=True)
    return replace(attention, weights_LHJI=mean_LHJI).links(0)
