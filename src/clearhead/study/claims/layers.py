"""C12: early layers catch raw properties, later ones more complicated ones. Linear probes on each encoder layer.

N examples of a property, D model width, C classes
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.api import Model
from clearhead.grammar import Example, split_words
from clearhead.grammar.lexicon import NOUNS
from clearhead.inspection.trace.trace_types import Trace
from clearhead.study.claims.parallelism import at
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.protocol import Findings, StudyContext, StudyInfo
from clearhead.study.harness.training import TOKENIZER, sentences, train, write_examples
from clearhead.study.harness.verdict import DecisionRule, Numbers, Requirement, Seen

TRAINED, FRESH = "trained", "untrained"
WORD, POSITION, NUMBER, ANTECEDENT, CONTROL = "word", "position", "number", "antecedent", "control"
PROPERTIES = {
    WORD: "which word it is",
    POSITION: "its place",
    NUMBER: "number of a noun",
    ANTECEDENT: 'gender behind "it"',
    CONTROL: 'made-up gender behind "it"',
}
GENDERS = {noun.english: noun.gender for noun in NOUNS}
NUMBERS = {noun.english: "one" for noun in NOUNS} | {noun.plural: "many" for noun in NOUNS if not noun.mass}
MOST_WORDS, MOST_PLACES = 40, 12
RIDGE = 1e-2  # of the mean variance of the states: keeps the fit of few examples in many dimensions tame


def _gain(seen: Seen, name: str) -> float:
    """What the best layer above the embedding has more than the embedding."""
    row = at(seen[TRAINED], name)
    return max(value for layer, value in row.items() if layer > 0) - row[0]


def _loss(seen: Seen, name: str) -> float:
    """What the last layer has less than the embedding."""
    row = at(seen[TRAINED], name)
    return row[0] - row[max(row)]


# Row 0 is the embedding: it knows the word and nothing of the sentence, so that the gender behind "it" can only be
# guessed there. With 150 test sentences a standard error is 0.04, with 500 it is 0.02: 0.15 is a gain, 0.04 is none. A
# raw property "is caught early" where the embedding has it and the last layer does not have it better.
RULE = DecisionRule(
    (
        Requirement('later layers know the gender of the noun behind "it", the embedding does not (accuracy gained)',
                    lambda seen: _gain(seen, ANTECEDENT), 0.15, 0.04, "four standard errors, and one"),
        Requirement("more than a made-up gender, which a probe could only learn by heart (accuracy above it)",
                    lambda seen: max(at(seen[TRAINED], ANTECEDENT).values()) - max(at(seen[TRAINED], CONTROL).values()),
                    0.15, 0.04, "four standard errors, and one"),
        Requirement("the word itself is known best at the bottom (accuracy that the last layer has more)",
                    lambda seen: -_loss(seen, WORD), 0.0, 0.04, "no more at the top than at the bottom"),
    )
)  # fmt: skip
ABOUT = StudyInfo(
    "layers",
    "C12",
    "Stacking: early layers catch raw properties, later ones more complicated ones",
    RULE,
    "A linear probe shows what can be read off a layer, not what the layers above make of it.",
    light=(FRESH,),
)


@dataclass(frozen=True)
class Layers:
    """Probes on every layer of a translator's encoder."""

    about: StudyInfo = ABOUT
    minutes: float = 15.0
    seeds: int = 2
    pairs: int = 20_000
    probed: int = 1500  # sentences, two thirds to fit and one to test
    distance: tuple[int, int] = (2, 15)
    width: int = 128
    layers: int = 4
    decoder_layers: int = 1  # it asks before it has seen the source: what "it" stands for is left to the encoder

    @property
    def conditions(self) -> tuple[str, ...]:
        """A trained encoder, and one that was never trained."""
        return (TRAINED, FRESH)

    @property
    def columns(self) -> Mapping[str, str]:
        """The bottom and the top."""
        ends = {0: "embedding", self.layers: "last layer"}
        return {f"{name}@{layer}": f"{text}, {end}" for name, text in PROPERTIES.items() for layer, end in ends.items()}

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """One training on sentences of which half have a pronoun, then probes."""
        known = [*sentences(self.pairs // 2, seed), *sentences(self.pairs // 2, seed, "train", self.distance)]
        random.Random(seed).shuffle(known)
        depth = {"num_encoder_layers": self.layers, "num_decoder_layers": self.decoder_layers}
        shape = {
            "model_dim": self.width,
            "feed_forward_dim": 2 * self.width,
            "num_heads": 4,
            "positions": "rotary",
            **depth,
        }
        model = train(
            bench, write_examples(bench.folder / "train.tsv", known), seed, shape,
            tokenizer=TOKENIZER, steps=None if condition == TRAINED else 1,
            training={} if condition == TRAINED else {"learning_rate": 1e-12},
        )  # fmt: skip
        examples = sentences(self.probed, seed, "test_pronoun", self.distance)
        return probe_all(model, examples, seed)

    def charts(self, found: Findings) -> list[Chart]:
        """Accuracy by layer."""
        series = [Series(text, [(layer, found.values(TRAINED, f"{name}@{layer}")) for layer in range(self.layers + 1)])
                  for name, text in PROPERTIES.items()]  # fmt: skip
        return [Chart("layers", "What a linear probe reads off each layer of a trained encoder",
                      "layer (0: the embedding)", "accuracy", series)]  # fmt: skip


@dataclass(frozen=True)
class ProbedToken:
    """One place of one sentence, and what it is called by a property."""

    sentence: int
    place: int
    label: str


def probe_all(model: Model, examples: Sequence[Example], seed: int) -> Numbers:
    """Accuracy of every property at every layer."""
    traces = [model.trace(one.source, one.target) for one in examples]
    layers = [encoder_states(one) for one in traces]
    draw = random.Random(seed)
    labels: dict[str, list[ProbedToken]] = {name: [] for name in PROPERTIES}
    for number, (example, trace) in enumerate(zip(examples, traces, strict=True)):
        for name, place, label in properties(example, trace, draw):
            labels[name].append(ProbedToken(number, place, label))
    common = {word for word, _ in Counter(one.label for one in labels[WORD]).most_common(MOST_WORDS)}
    labels[WORD] = [one for one in labels[WORD] if one.label in common]
    limit = len(examples) * 2 // 3
    return {
        f"{name}@{layer}": _probe([states[layer] for states in layers], some, limit)
        for name, some in labels.items()
        for layer in range(len(layers[0]))
    }


def encoder_states(trace: Trace) -> list[Tensor]:
    """states_SD of the embedding and after each layer of the encoder."""
    found: dict[int, Tensor] = {}
    for one in trace.residual_streams:
        if one.name.startswith("encoder"):
            found[one.layer] = torch.from_numpy(one.states_TD).double()  # the last sub-layer of a layer stays
    return [found[layer] for layer in sorted(found)]


def properties(example: Example, trace: Trace, draw: random.Random) -> Iterator[tuple[str, int, str]]:
    """(property, place, label) of a sentence; a word stands at its first piece."""
    first: dict[int, int] = {}
    for place, one in enumerate(trace.source):
        if one.word >= 0:
            first.setdefault(one.word, place)
    words = split_words(example.source)
    for number, word in enumerate(words):
        place = first[number]
        yield WORD, place, word.lower()
        if number < MOST_PLACES:
            yield POSITION, place, str(number)
        if word in NUMBERS:
            yield NUMBER, place, NUMBERS[word]
    assert example.pronoun is not None
    noun = words[example.pronoun.antecedent].lower()
    if noun in GENDERS:
        yield ANTECEDENT, first[example.pronoun.index], GENDERS[noun]
        yield CONTROL, first[example.pronoun.index], draw.choice("mfn")


def _probe(states: Sequence[Tensor], labels: Sequence[ProbedToken], limit: int) -> float:
    """Accuracy on sentences from `limit` on, of a linear probe that was fitted on those before."""
    names = sorted({one.label for one in labels})
    known = [one for one in labels if one.sentence < limit]
    tested = [one for one in labels if one.sentence >= limit]
    if not known or not tested:
        return 0.0
    x_ND = torch.stack([states[one.sentence][one.place] for one in known])
    y_NC = torch.nn.functional.one_hot(torch.tensor([names.index(one.label) for one in known]), len(names)).double()
    mean_D = x_ND.mean(0)
    weights_DC = _ridge(x_ND - mean_D, y_NC - y_NC.mean(0))
    test_ND = torch.stack([states[one.sentence][one.place] for one in tested]) - mean_D
    found_N: list[int] = (test_ND @ weights_DC + y_NC.mean(0)).argmax(1).tolist()
    return sum(names[index] == one.label for index, one in zip(found_N, tested, strict=True)) / len(tested)


def _ridge(x_ND: Tensor, y_NC: Tensor) -> Tensor:
    """Least squares with a penalty in proportion to the states' own variance."""
    gram_DD = x_ND.T @ x_ND
    penalty = RIDGE * float(gram_DD.diagonal().mean()) + 1e-9
    damped_DD = gram_DD + penalty * torch.eye(len(gram_DD), dtype=gram_DD.dtype)
    weights_DC: Tensor = torch.linalg.solve(damped_DD, x_ND.T @ y_NC)
    return weights_DC
