"""C3: the fixed context vector of plain seq2seq is the bottleneck; attention repairs it. BLEU by source length.

C4: attention weights are probabilities and readable: they align source and target words.

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
from clearhead.inspection.analyses.word_attention import HeadAlignment, align_heads, word_attention
from clearhead.inspection.trace.trace_types import Trace
from clearhead.study.claims.parallelism import sweep
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.models_and_data import (
    FAST_MEASUREMENT,
    TOKENIZER,
    examples_of_length,
    grammar_examples,
    to_pairs,
    train_model,
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
)

WITHOUT, WITH = "without attention", "with attention"


def _fall(seen: SeedNumbers, condition: str) -> float:
    """BLEU lost from the shortest sentences to the longest."""
    row = sweep(seen[condition], "bleu")
    return row[min(row)] - row[max(row)]


def _gap(seen: SeedNumbers) -> float:
    longest = max(sweep(seen[WITH], "bleu"))
    return seen[WITH][f"bleu@{longest}"] - seen[WITHOUT][f"bleu@{longest}"]


# Five BLEU are a difference that a reader of translations sees, one is not. "Repairs" is taken to be that with
# attention not more than half of the fall is left.
BOTTLENECK_RULE = DecisionRule(
    (
        Requirement("without attention, quality falls with length (BLEU from the shortest to the longest)",
                    lambda seen: _fall(seen, WITHOUT), 5.0, 1.0, "a reader sees five BLEU, not one"),
        Requirement("on the longest sentences attention is better (BLEU)", _gap, 5.0, 1.0,
                    "a reader sees five BLEU, not one"),
        Requirement("attention takes away at least half of the fall (share of it that is left)",
                    lambda seen: max(0.0, _fall(seen, WITH)) / max(1e-9, _fall(seen, WITHOUT)), 0.5, 0.9,
                    "half of it is a repair, a tenth is none"),
    )
)  # fmt: skip
BOTTLENECK = StudyInfo(
    "bottleneck",
    "C3",
    "The fixed context vector of plain seq2seq is the bottleneck: quality falls with sentence length, attention "
    "repairs it",
    BOTTLENECK_RULE,
    "LSTMs of one width on the built-in grammar, equal time to train.",
)


@dataclass(frozen=True)
class BottleneckStudy:
    """An LSTM with and without attention."""

    about: StudyInfo = BOTTLENECK
    minutes: float = 10.0
    seeds: int = 3
    pairs: int = 20_000
    tested: int = 100
    bins: tuple[tuple[int, int], ...] = ((3, 6), (7, 9), (10, 13), (14, 18), (19, 40))
    width: int = 128

    @property
    def conditions(self) -> tuple[str, ...]:
        """Without and with."""
        return (WITHOUT, WITH)

    @property
    def columns(self) -> Mapping[str, str]:
        """BLEU by length."""
        return {f"bleu@{low}": f"BLEU, {low} to {high} words" for low, high in self.bins}

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """One training, and a test for each length."""
        file = write_examples(bench.folder / "train.tsv", grammar_examples(self.pairs, seed))
        shape = {"family": "lstm", "attention": "none" if condition == WITHOUT else "additive",
                 "model_dim": self.width, "num_encoder_layers": 1, "num_decoder_layers": 1}  # fmt: skip
        model = train_model(bench, file, seed, shape, tokenizer=TOKENIZER, decoding={"beam_size": 1})
        found = {}
        for low, high in self.bins:
            examples = examples_of_length(self.tested, seed, "test", low, high)
            written = [one.text for one in model.translate_pairs(to_pairs(examples))]
            found[f"bleu@{low}"] = bleu(written, [one.target for one in examples]).value
        return found

    def charts(self, found: Findings) -> list[Chart]:
        """BLEU by length."""
        series = [Series(kind, [(x, found.values(kind, f"bleu@{low}")) for x, (low, _) in enumerate(self.bins)])
                  for kind in self.conditions]  # fmt: skip
        ticks = [f"{low} to {high}" for low, high in self.bins]
        return [Chart("bottleneck", "An LSTM with and without attention", "words in the source", "BLEU", series,
                      ticks=ticks)]  # fmt: skip


MODELS = ("lstm + attention", "transformer")
DIAGONAL, COOCCURRENCE = "diagonal", "words that occur together"

# The best head is chosen on one half of the sentences and measured on the other: else the best of many would look good
# by luck. German and English order are often alike, so the diagonal is a real opponent; a tenth of error rate
# less is plain. Words that occur together know the dictionary but no context: attention should be at least as good.
ALIGNMENT_RULE = DecisionRule(
    (
        Requirement("attention is a probability: rows of weights sum to 1 (largest difference)",
                    lambda seen: max(seen[kind]["sum_error"] for kind in MODELS), 1e-4, 1e-2, "rounding of float32"),
        Requirement("the best head of each model aligns better than the diagonal (error rate less, the worse model)",
                    lambda seen: seen[DIAGONAL]["best"] - max(seen[kind]["best"] for kind in MODELS), 0.1, 0.0,
                    "a tenth less is plain, none is not"),
        Requirement("the better model aligns at least as well as words that occur together do",
                    lambda seen: seen[COOCCURRENCE]["best"] - min(seen[kind]["best"] for kind in MODELS), 0.0, -0.1,
                    "as good or better; a tenth worse is not readable"),
    )
)  # fmt: skip
ALIGNMENT = StudyInfo(
    "alignment",
    "C4",
    "Attention weights are probabilities and readable: they align source and target words",
    ALIGNMENT_RULE,
    "The best head was chosen by the gold of other sentences; the average of all heads stands beside it.",
    light=(DIAGONAL, COOCCURRENCE),
)


@dataclass(frozen=True)
class AlignmentStudy:
    """Alignment error rate of every head against the grammar's gold."""

    about: StudyInfo = ALIGNMENT
    minutes: float = 15.0
    seeds: int = 2
    pairs: int = 20_000
    tested: int = 200
    width: int = 128
    layers: int = 3

    @property
    def conditions(self) -> tuple[str, ...]:
        """Two baselines and two models."""
        return (DIAGONAL, COOCCURRENCE, *MODELS)

    @property
    def columns(self) -> Mapping[str, str]:
        """Error rates."""
        return {"best": "AER", "mean": "AER, mean of all heads", "worst": "AER, worst head", "nats": "nats a token"}

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """A baseline, or one training and every head."""
        known, tested = grammar_examples(self.pairs, seed), grammar_examples(self.tested, seed, "test")
        half = len(tested) // 2
        if condition == DIAGONAL:
            return {"best": _error_rate([diagonal_links(one) for one in tested[half:]], tested[half:])}
        if condition == COOCCURRENCE:
            dictionary = CooccurrenceDictionary.of(known)
            return {"best": _error_rate([dictionary.links(one) for one in tested[half:]], tested[half:])}
        file = write_examples(bench.folder / "train.tsv", known)
        model = train_model(bench, file, seed, self._shape(condition), share=FAST_MEASUREMENT, tokenizer=TOKENIZER)
        return _of_model(model, tested[:half], tested[half:])

    def _shape(self, condition: str) -> dict[str, Any]:
        if condition == "transformer":
            depth = {"num_encoder_layers": self.layers, "num_decoder_layers": self.layers}
            return {"model_dim": self.width, "feed_forward_dim": 2 * self.width, "num_heads": 4, **depth}
        return {"family": "lstm", "model_dim": self.width, "attention": "additive", "bidirectional": True,
                "num_encoder_layers": 1, "num_decoder_layers": 1}  # fmt: skip

    def charts(self, found: Findings) -> list[Chart]:
        """The best head beside the average and the baselines."""
        series = [Series(label, [(x, found.values(kind, name)) for x, kind in enumerate(self.conditions)])
                  for name, label in (("best", "best head, or the baseline"), ("mean", "mean of all heads"),
                                      ("worst", "worst head"))]  # fmt: skip
        return [Chart("alignment", "Alignment error rate against the gold (0 is best)", "", "error rate", series,
                      ticks=self.conditions, is_joined=False)]  # fmt: skip


Links = frozenset[tuple[int, int]]


def _error_rate(links: Sequence[Links], gold: Sequence[Example]) -> float:
    """Over a whole corpus."""
    found = {(number, *link) for number, one in enumerate(links) for link in one}
    truth = {(number, *link) for number, one in enumerate(gold) for link in one.alignment}
    return alignment_error_rate(found, truth)


def diagonal_links(example: Example) -> Links:
    """Each target word with the source word as far along its sentence."""
    sources, targets = (len(split_words(text)) for text in (example.source, example.target))
    return frozenset((round(j * (sources - 1) / max(1, targets - 1)), j) for j in range(targets))


@dataclass(frozen=True)
class CooccurrenceDictionary:
    """How often words occur, and how often they occur in the same pair."""

    sources: Counter[str]
    targets: Counter[str]
    together: Counter[tuple[str, str]]

    @classmethod
    def of(cls, examples: Sequence[Example]) -> "CooccurrenceDictionary":
        """Counted over a corpus."""
        found = cls(Counter(), Counter(), Counter())
        for example in examples:
            source, target = set(split_words(example.source)), set(split_words(example.target))
            found.sources.update(source)
            found.targets.update(target)
            found.together.update((one, other) for one in source for other in target)
        return found

    def links(self, example: Example) -> Links:
        """Each target word with the source word of the highest Dice coefficient; of equal ones the first."""
        source, target = split_words(example.source), split_words(example.target)

        def dice(i: int, word: str) -> float:
            total = self.sources[source[i]] + self.targets[word]
            return 2 * self.together[source[i], word] / total if total else 0.0

        return frozenset(
            (max(range(len(source)), key=lambda i: dice(i, word)), j) for j, word in enumerate(target)
        )  # fmt: skip


def _heads(traces: Sequence[Trace], examples: Sequence[Example]) -> list[HeadAlignment]:
    """Every head by itself, without the means of layers, the best first."""
    found = align_heads([word_attention(one) for one in traces], [one.alignment for one in examples])
    is_single = traces[0].layers("cross")[0].weights_HTS.shape[0] == 1
    return [one for one in found if one.part.head is not None or is_single]


def _of_model(model: Model, chosen_on: Sequence[Example], tested: Sequence[Example]) -> Numbers:
    """The head that was best on some sentences, measured on others."""
    choosing = [model.trace(one.source, one.target) for one in chosen_on]
    best = _heads(choosing, chosen_on)[0].part
    traces = [model.trace(one.source, one.target) for one in tested]
    rates = {one.part: one.error_rate for one in _heads(traces, tested)}
    sums = [float(np.abs(each.weights_HTS.sum(-1) - 1).max()) for one in traces for each in one.attention]
    tokens = sum(len(one.token_log_probs) for one in traces)
    return {
        "best": rates[best],
        "worst": max(rates.values()),
        "mean": _error_rate([_mean_links(one) for one in traces], tested),
        "sum_error": max(sums),
        "nats": -sum(one.log_prob for one in traces) / tokens,
    }


def _mean_links(trace: Trace) -> Links:
    found = word_attention(trace)
    mean_LHJI = found.weights_LHJI.mean((0, 1), keepdims=True)
    return replace(found, weights_LHJI=mean_LHJI).links(0)
