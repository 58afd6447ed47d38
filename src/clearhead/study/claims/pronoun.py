"""C5: the state of "it" depends on its antecedent: which heads attend to it, and which pronouns fail without them."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from clearhead.api import Model
from clearhead.data.readers.pairs import Pair
from clearhead.grammar import Example, split_words
from clearhead.inspection.analyses.head_statistics import HeadCoreference, rank_heads_by_coreference
from clearhead.study.harness.charts import Chart
from clearhead.study.harness.models_and_data import (
    TOKENIZER,
    examples_with_pronouns,
    grammar_examples,
    train_model,
    transformer_shape,
    write_examples,
)
from clearhead.study.harness.protocol import (
    DecisionRule,
    Findings,
    Numbers,
    Requirement,
    StudyContext,
    StudyInfo,
    bin_ticks,
)

TRANSFORMER = "transformer"
FORMS = ("er", "sie", "es", "ihn", "ihm", "ihr")  # "it" in every gender and case of the singular

# Heads are selected on one half of the sentences and measured on the other half. A head that attends to random words
# finds the antecedent at the measured chance rate: three times that rate is not a coincidence, one and a half times may
# be. Any ablation costs some accuracy, so it is compared with the ablation of as many random heads: a difference of
# 0.05 is an effect. A model that has not learned the pronoun (accuracy below 0.6, where guessing the gender gives 1/3)
# neither supports nor contradicts the claim, so this requirement cannot fail.
RULE = DecisionRule(
    (
        Requirement("the model has learned the German pronoun (accuracy over all forms)",
                    lambda runs: runs[TRANSFORMER]["accuracy"], 0.6, -1.0, "otherwise there is nothing to explain"),
        Requirement('some head attends from "it" to its antecedent (rate relative to chance)',
                    lambda runs: runs[TRANSFORMER]["antecedent_rate"] / runs[TRANSFORMER]["chance_rate"], 3.0, 1.5,
                    "three times chance is not a coincidence"),
        Requirement("ablating these heads costs more accuracy than ablating as many random heads (difference)",
                    lambda runs: runs[TRANSFORMER]["accuracy_random_ablated"] - runs[TRANSFORMER]["accuracy_ablated"],
                    0.05, 0.0, "5 % of all pronouns is an effect"),
    )
)  # fmt: skip
INFO = StudyInfo(
    "pronoun",
    "C5",
    '"The animal didn\'t cross the street because it was too tired": the state of "it" draws on "animal"',
    RULE,
    "A pronoun counts as correct if the translation is more probable than with any other form of the pronoun.",
)


@dataclass(frozen=True)
class PronounStudy:
    """Attention heads of one Transformer, and its accuracy with some of them ablated."""

    info: StudyInfo = INFO
    minutes: float = 10.0
    seeds: int = 2
    train_size: int = 20_000
    bins: tuple[tuple[int, int], ...] = ((2, 4), (5, 8), (9, 15), (16, 30), (31, 60))
    test_size: int = 60  # sentences per bin, half of them to select heads
    train_distance: tuple[int, int] = (2, 30)
    ablated_heads: int = 3
    random_draws: int = 5
    width: int = 128
    layers: int = 3
    decoder_layers: int = 1  # a deeper decoder can attend to the German noun instead of using the state of "it"

    @property
    def conditions(self) -> tuple[str, ...]:
        """The only model."""
        return (TRANSFORMER,)

    @property
    def columns(self) -> Mapping[str, str]:
        """Accuracies, and rates at which the best head finds the antecedent."""
        return {"accuracy": "accuracy", "accuracy_ablated": "heads ablated",
                "accuracy_random_ablated": "random heads ablated", "antecedent_rate": "best head finds the noun",
                "chance_rate": "chance"}  # fmt: skip

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Train on sentences of which half contain a pronoun, then measure and ablate heads."""
        examples = examples_with_pronouns(self.train_size, seed, self.train_distance)
        file = write_examples(context.folder / "train.tsv", examples)
        shape = transformer_shape(self.width, self.layers, self.decoder_layers, positions="rotary")
        model = train_model(context, file, seed, shape, tokenizer=TOKENIZER)
        by_bin = {
            low: with_forms(grammar_examples(self.test_size, seed, "test_pronoun", (low, high)))
            for low, high in self.bins
        }
        selection = [example for examples in by_bin.values() for example in examples[::2]]
        test = {low: examples[1::2] for low, examples in by_bin.items()}
        return self._measure_heads(model, selection, test, seed)

    def _measure_heads(
        self, model: Model, selection: Sequence[Example], test: Mapping[int, Sequence[Example]], seed: int
    ) -> Numbers:
        ranked = [head.head_ref for head in _rank_heads(model, selection)]
        selected, remaining = ranked[: self.ablated_heads], ranked[self.ablated_heads :]
        all_test = [example for examples in test.values() for example in examples]
        heads = {head.head_ref: head for head in _rank_heads(model, all_test)}
        rng = random.Random(seed)
        count = min(self.ablated_heads, len(remaining))
        random_ablated = [model.with_ablated(rng.sample(remaining, count)) for _ in range(self.random_draws)]
        ablated = model.with_ablated(selected)
        numbers: dict[str, float] = {
            "accuracy": pronoun_accuracy(model, all_test),
            "accuracy_ablated": pronoun_accuracy(ablated, all_test),
            "accuracy_random_ablated": sum(pronoun_accuracy(other, all_test) for other in random_ablated)
            / len(random_ablated),
            "antecedent_rate": heads[ranked[0]].accuracy,
            "chance_rate": heads[ranked[0]].chance_accuracy,
        }
        for index, part in enumerate(selected, 1):
            numbers |= {f"ablated_layer_{index}": part.layer, f"ablated_head_{index}": float(part.head or 0)}
        for low, examples in test.items():
            best = next(head for head in _rank_heads(model, examples) if head.head_ref == ranked[0])
            numbers |= {f"accuracy@{low}": pronoun_accuracy(model, examples), f"antecedent_rate@{low}": best.accuracy,
                        f"accuracy_ablated@{low}": pronoun_accuracy(ablated, examples)}  # fmt: skip
        return numbers

    def charts(self, findings: Findings) -> list[Chart]:
        """Return accuracies and the rate of the best head by distance."""
        labels = {"accuracy": "accuracy", "accuracy_ablated": "accuracy with these heads ablated",
                  "antecedent_rate": "best head attends to the noun"}  # fmt: skip
        series = [findings.bin_series(TRANSFORMER, name, self.bins, label) for name, label in labels.items()]
        return [Chart("pronoun", '"it" and its noun, by distance', "distance in words", "share of the sentences",
                      series, ticks=bin_ticks(self.bins))]  # fmt: skip


def _rank_heads(model: Model, examples: Sequence[Example]) -> list[HeadCoreference]:
    """Return the encoder heads, which compute the state of "it", by how often they find the antecedent."""
    traces = [model.trace(example.source, example.target) for example in examples]
    heads = rank_heads_by_coreference(traces, [example.pronoun for example in examples if example.pronoun is not None])
    return [head for head in heads if head.head_ref.name == "encoder"]


def german_form(example: Example) -> str:
    """Return the German translation of "it", or an empty string if it is none of the forms."""
    if example.pronoun is None:
        return ""
    word = split_words(example.target)[example.pronoun.target_index].lower()
    return word if word in FORMS else ""


def with_forms(examples: Sequence[Example]) -> list[Example]:
    """Return the examples whose German pronoun is one of the forms."""
    return [example for example in examples if german_form(example)]


def other_forms(example: Example) -> Iterator[str]:
    """Yield the target with its pronoun replaced by each of the other forms."""
    assert example.pronoun is not None
    words = split_words(example.target)
    start = 0
    for word in words[: example.pronoun.target_index]:
        start = example.target.index(word, start) + len(word)
    gold = words[example.pronoun.target_index]
    start = example.target.index(gold, start)
    for form in FORMS:
        if form != gold.lower():
            replacement = form.capitalize() if gold[0].isupper() else form
            yield example.target[:start] + replacement + example.target[start + len(gold) :]


def pronoun_accuracy(model: Model, examples: Sequence[Example]) -> float:
    """Return the fraction of sentences in which no other form is more probable than the gold form."""
    pairs = [
        Pair(example.source, target, line)
        for line, example in enumerate(examples, 1)
        for target in (example.target, *other_forms(example))
    ]
    scores = [score.log_prob for score in model.score(pairs)]
    size = len(FORMS)
    by_sentence = [scores[start : start + size] for start in range(0, len(scores), size)]
    return sum(forms[0] >= max(forms[1:]) for forms in by_sentence) / len(by_sentence)
