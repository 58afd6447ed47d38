"""C4: attention weights are probabilities and readable: they align source and target words.

L layers, H heads, J target words, I source words
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clearhead.api import Model
from clearhead.evaluation.alignment import alignment_error_rate
from clearhead.grammar import Example, split_words
from clearhead.inspection.analyses.word_attention import HeadAlignment, align_heads, word_attention
from clearhead.inspection.trace.trace_types import Trace
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.protocol import Findings, StudyContext, StudyInfo
from clearhead.study.harness.training import QUICK, TOKENIZER, sentences, train, write_examples
from clearhead.study.harness.verdict import DecisionRule, Numbers, Requirement

MODELS = ("lstm + attention", "transformer")
DIAGONAL, TOGETHER = "diagonal", "words that occur together"

# The best head is chosen on one half of the sentences and measured on the other: else the best of many would look good
# by luck. German and English order are often alike, so the diagonal is a real opponent; a tenth of error rate
# less is plain. Words that occur together know the dictionary but no context: attention should be at least as good.
RULE = DecisionRule(
    (
        Requirement("attention is a probability: rows of weights sum to 1 (largest difference)",
                    lambda seen: max(seen[kind]["sum_error"] for kind in MODELS), 1e-4, 1e-2, "rounding of float32"),
        Requirement("the best head of each model aligns better than the diagonal (error rate less, the worse model)",
                    lambda seen: seen[DIAGONAL]["best"] - max(seen[kind]["best"] for kind in MODELS), 0.1, 0.0,
                    "a tenth less is plain, none is not"),
        Requirement("the better model aligns at least as well as words that occur together do",
                    lambda seen: seen[TOGETHER]["best"] - min(seen[kind]["best"] for kind in MODELS), 0.0, -0.1,
                    "as good or better; a tenth worse is not readable"),
    )
)  # fmt: skip
ABOUT = StudyInfo(
    "alignment",
    "C4",
    "Attention weights are probabilities and readable: they align source and target words",
    RULE,
    "The best head was chosen by the gold of other sentences; the average of all heads stands beside it.",
    light=(DIAGONAL, TOGETHER),
)


@dataclass(frozen=True)
class AlignmentStudy:
    """Alignment error rate of every head against the grammar's gold."""

    about: StudyInfo = ABOUT
    minutes: float = 15.0
    seeds: int = 2
    pairs: int = 20_000
    tested: int = 200
    width: int = 128
    layers: int = 3

    @property
    def conditions(self) -> tuple[str, ...]:
        """Two baselines and two models."""
        return (DIAGONAL, TOGETHER, *MODELS)

    @property
    def columns(self) -> Mapping[str, str]:
        """Error rates."""
        return {"best": "AER", "mean": "AER, mean of all heads", "worst": "AER, worst head", "nats": "nats a token"}

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """A baseline, or one training and every head."""
        known, tested = sentences(self.pairs, seed), sentences(self.tested, seed, "test")
        half = len(tested) // 2
        if condition == DIAGONAL:
            return {"best": _error_rate([diagonal(one) for one in tested[half:]], tested[half:])}
        if condition == TOGETHER:
            dictionary = Dictionary.of(known)
            return {"best": _error_rate([dictionary.links(one) for one in tested[half:]], tested[half:])}
        file = write_examples(bench.folder / "train.tsv", known)
        model = train(bench, file, seed, self._shape(condition), share=QUICK, tokenizer=TOKENIZER)
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


def diagonal(example: Example) -> Links:
    """Each target word with the source word as far along its sentence."""
    sources, targets = (len(split_words(text)) for text in (example.source, example.target))
    return frozenset((round(j * (sources - 1) / max(1, targets - 1)), j) for j in range(targets))


@dataclass(frozen=True)
class Dictionary:
    """How often words occur, and how often they occur in the same pair."""

    sources: Counter[str]
    targets: Counter[str]
    together: Counter[tuple[str, str]]

    @classmethod
    def of(cls, examples: Sequence[Example]) -> "Dictionary":
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
    return [one for one in found if one.head_ref.head is not None or is_single]


def _of_model(model: Model, chosen_on: Sequence[Example], tested: Sequence[Example]) -> Numbers:
    """The head that was best on some sentences, measured on others."""
    choosing = [model.trace(one.source, one.target) for one in chosen_on]
    best = _heads(choosing, chosen_on)[0].head_ref
    traces = [model.trace(one.source, one.target) for one in tested]
    rates = {one.head_ref: one.error_rate for one in _heads(traces, tested)}
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
