"""C1: plain recurrent networks lose long-range dependencies, LSTMs keep them for about 100 steps, attention keeps all.

In the recall task, the source is a key word followed by a number of filler words, and the target is the key. In the
pronoun task, the source is an English sentence with "it", up to 60 words after its noun, and the target is the German
pronoun.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.api import Model
from clearhead.config.data import SPECIAL_TOKENS
from clearhead.grammar import split_words
from clearhead.model.parameters import count_parameters
from clearhead.study.claims.pronoun import german_form, with_forms
from clearhead.study.harness.charts import Chart
from clearhead.study.harness.models_and_data import grammar_examples, train_model, untrained_network, write_pairs
from clearhead.study.harness.protocol import (
    DecisionRule,
    Findings,
    Numbers,
    Requirement,
    SeedNumbers,
    StudyContext,
    StudyInfo,
    bin_ticks,
    sweep,
)

Line = tuple[str, str]
KEYS = [f"key{number}" for number in range(8)]
FILLERS = [f"word{number}" for number in range(20)]
MAX_PREFIX = 5  # fillers before the key, so that its absolute position varies
# Rows of the longest sentences per batch. Recurrent networks need many updates rather than large batches: with batches
# of 1,024 tokens, an LSTM recalled nothing after 250 updates, and 9 of 10 keys at distance 5 after 1,000 updates.
BATCH_ROWS = 4
RECALL_SHARE = 3 / 4  # of the training time, because the rule is about recall

TRANSFORMER = "transformer"
FAMILIES: dict[str, dict[str, Any]] = {
    "rnn": {"family": "rnn", "attention": "none"},
    "gru": {"family": "gru", "attention": "none"},
    "lstm": {"family": "lstm", "attention": "none"},
    "lstm + attention": {"family": "lstm", "attention": "additive"},
    TRANSFORMER: {"num_heads": 4},
}


def _accuracy_near(runs: SeedNumbers, family: str, distance: int) -> float:
    """Return the accuracy at the measured distance that is closest to `distance`."""
    accuracies = sweep(runs[family], "accuracy")
    return accuracies[min(accuracies, key=lambda measured: abs(measured - distance))]


def _worst_accuracy(runs: SeedNumbers, family: str) -> float:
    return min(sweep(runs[family], "accuracy").values())


# With 8 keys, chance is 1 in 8. A dependency counts as lost below an accuracy of 0.5 and as kept from 0.9; values in
# between are neither. "About 100" and "toward 1,000" are taken literally.
RULE = DecisionRule(
    (
        Requirement("a plain recurrent network has lost the key at distance 200 (accuracy)",
                    lambda runs: _accuracy_near(runs, "rnn", 200), 0.5, 0.9,
                    "below 0.5 the key is lost, from 0.9 it is recalled"),
        Requirement("an LSTM recalls the key at distance 100 (accuracy)",
                    lambda runs: _accuracy_near(runs, "lstm", 100), 0.9, 0.5,
                    "below 0.5 the key is lost, from 0.9 it is recalled"),
        Requirement("an LSTM has lost the key at distance 1,000 (accuracy)",
                    lambda runs: _accuracy_near(runs, "lstm", 1000), 0.5, 0.9,
                    "below 0.5 the key is lost, from 0.9 it is recalled"),
        Requirement("the LSTM with attention and the Transformer recall the key at every distance (lowest accuracy)",
                    lambda runs: min(_worst_accuracy(runs, "lstm + attention"), _worst_accuracy(runs, TRANSFORMER)),
                    0.9, 0.5, "below 0.5 the key is lost, from 0.9 it is recalled"),
    )
)  # fmt: skip
INFO = StudyInfo(
    "long-range",
    "C1",
    "Plain recurrent networks lose long-range dependencies; LSTMs keep them for about 100 steps and fail toward 1,000; "
    "attention is independent of distance",
    RULE,
    "Equal training time, about equal size. The rule covers the recall of one word. The pronoun task is harder, "
    "because it requires the right noun and its German gender, and covers at most 60 words.",
)


@dataclass(frozen=True)
class LongRangeStudy:
    """Accuracy of recall and of pronouns by distance, for five model families."""

    info: StudyInfo = INFO
    minutes: float = 15.0
    seeds: int = 2
    distances: tuple[int, ...] = (5, 10, 20, 50, 100, 200, 500, 1000)
    train_words: int = 200_000  # per distance, so that each distance gets as many updates
    bins: tuple[tuple[int, int], ...] = ((2, 4), (5, 8), (9, 15), (16, 30), (31, 60))
    pronoun_sentences: int = 3000  # training sentences per bin
    test_size: int = 100
    width: int = 48

    @property
    def conditions(self) -> tuple[str, ...]:
        """Model families."""
        return tuple(FAMILIES)

    @property
    def columns(self) -> Mapping[str, str]:
        """Accuracy by distance, and model sizes."""
        recall = {f"accuracy@{distance}": f"at {distance}" for distance in self.distances}
        pronoun = {f"pronoun_accuracy@{low}": f"it, {low} to {high}" for low, high in self.bins}
        return recall | {"parameters": "parameters"} | pronoun | {"pronoun_parameters": "parameters, it"}

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Train one model per task on all distances together, and test it at each distance."""
        return self._recall(condition, seed, context) | self._pronoun(condition, seed, context)

    def _recall(self, condition: str, seed: int, context: StudyContext) -> dict[str, float]:
        rng = random.Random(seed)
        lines = [recall_line(distance, rng) for distance in self.distances for _ in range(self._line_count(distance))]
        rng.shuffle(lines)
        tests = {distance: [recall_line(distance, rng) for _ in range(self.test_size)] for distance in self.distances}
        model = self._train(condition, lines, seed, context, RECALL_SHARE, self.distances[-1] + 2 * MAX_PREFIX)
        accuracies = {f"accuracy@{distance}": exact_match(model, test) for distance, test in tests.items()}
        return {"parameters": float(count_parameters(model.network)), **accuracies}

    def _pronoun(self, condition: str, seed: int, context: StudyContext) -> dict[str, float]:
        lines = [line for bounds in self.bins for line in pronoun_lines(self.pronoun_sentences, seed, "train", bounds)]
        random.Random(seed).shuffle(lines)
        max_length = max(len(source.split()) for source, _ in lines) + 50  # margin for the clause after "it"
        model = self._train(condition, lines, seed, context, 1 - RECALL_SHARE, max_length)
        tests = {low: pronoun_lines(self.test_size, seed, "test_pronoun", (low, high)) for low, high in self.bins}
        accuracies = {f"pronoun_accuracy@{low}": exact_match(model, test) for low, test in tests.items()}
        return {"pronoun_parameters": float(count_parameters(model.network)), **accuracies}

    def _train(
        self, condition: str, lines: Sequence[Line], seed: int, context: StudyContext, share: float, max_length: int
    ) -> Model:
        """Train on whole words as tokens, so that a target is one token."""
        vocab_size = len({word for line in lines for text in line for word in text.split()}) + len(SPECIAL_TOKENS)
        shape = _shape(condition, matched_width(condition, self.width, vocab_size))
        return train_model(
            context,
            write_pairs(context.folder / f"up-to-{max_length}.tsv", lines),
            seed,
            shape | {"max_positions": max_length},
            share=share,
            tokenizer={"kind": "pretokenized", "vocab_size": vocab_size, "min_frequency": 1},
            data={"max_tokens": max_length, "max_chars": 100_000, "validation_max": 100},
            training={"batch_tokens": max(1024, BATCH_ROWS * max_length), "label_smoothing": 0.0},
            decoding={"beam_size": 1, "max_length": "2"},
        )

    def _line_count(self, distance: int) -> int:
        return max(10, self.train_words // (distance + MAX_PREFIX))

    def charts(self, findings: Findings) -> list[Chart]:
        """Return accuracy by distance for both tasks."""
        recall = [findings.sweep_series(kind, "accuracy", self.distances) for kind in self.conditions]
        pronoun = [findings.bin_series(kind, "pronoun_accuracy", self.bins) for kind in self.conditions]
        return [
            Chart("long-range", "Recall of one word, after equal training time", "distance in words", "accuracy",
                  recall, log_x=True),
            Chart("long-range-pronoun", 'German translation of "it", after equal training time',
                  "distance to its noun in words", "accuracy", pronoun,
                  ticks=bin_ticks(self.bins)),
        ]  # fmt: skip


def recall_line(distance: int, rng: random.Random) -> Line:
    """Return a source with one key `distance` words before its end, and the key as target."""
    key = rng.choice(KEYS)
    prefix = rng.choices(FILLERS, k=rng.randint(0, MAX_PREFIX))
    return " ".join([*prefix, key, *rng.choices(FILLERS, k=distance)]), key


def pronoun_lines(count: int, seed: int, split: str, distance: tuple[int, int]) -> list[Line]:
    """Return sentences with "it" at a range of distances from its noun, each with the German pronoun as target."""
    examples = with_forms(grammar_examples(count, seed, split, distance))
    return [(" ".join(split_words(example.source)), german_form(example)) for example in examples]


def exact_match(model: Model, lines: Sequence[Line]) -> float:
    """Return the fraction of lines whose target the model generates exactly."""
    results = model.translate_many([source for source, _ in lines])
    return sum(result.text == target for result, (_, target) in zip(results, lines, strict=True)) / len(lines)


def matched_width(condition: str, width: int, vocab_size: int) -> int:
    """Return the multiple of 4 at which a family has about as many parameters as a Transformer of the given width."""

    def size(kind: str, width: int) -> int:
        return count_parameters(untrained_network("translate", 1, {**_shape(kind, width), "vocab_size": vocab_size}))

    if condition == TRANSFORMER:
        return width
    target_size = size(TRANSFORMER, width)
    return min(range(4, 4 * width, 4), key=lambda candidate: abs(size(condition, candidate) - target_size))


def _shape(condition: str, width: int) -> dict[str, Any]:
    shape = {"model_dim": width, "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.0}
    return FAMILIES[condition] | shape | ({"feed_forward_dim": 2 * width} if condition == TRANSFORMER else {})
