"""C12: early layers represent simple properties, later layers more complex ones. Linear probes on each encoder layer.

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
    SeedNumbers,
    StudyContext,
    StudyInfo,
    first_and_last,
    sweep,
)

TRAINED, UNTRAINED = "trained", "untrained"
WORD, POSITION, NUMBER, ANTECEDENT, CONTROL = "word", "position", "number", "antecedent", "control"
PROPERTIES = {
    WORD: "word identity",
    POSITION: "position",
    NUMBER: "number of a noun",
    ANTECEDENT: 'gender of the noun of "it"',
    CONTROL: 'random gender for "it"',
}
GENDERS = {noun.english: noun.gender for noun in NOUNS}
NUMBERS = {noun.english: "one" for noun in NOUNS} | {noun.plural: "many" for noun in NOUNS if not noun.mass}
MAX_WORDS, MAX_POSITIONS = 40, 12  # classes of the probes for words and positions
RIDGE = 1e-2  # relative to the mean variance of the states; regularizes fits of few examples in many dimensions


def _gain(runs: SeedNumbers, name: str) -> float:
    """Return the accuracy of the best layer above the embedding minus the accuracy of the embedding."""
    by_layer = sweep(runs[TRAINED], name)
    return max(value for layer, value in by_layer.items() if layer > 0) - by_layer[0]


def _last_layer_gain(runs: SeedNumbers, name: str) -> float:
    """Return the accuracy of the last layer minus the accuracy of the embedding."""
    embedding, last = first_and_last(runs[TRAINED], name)
    return last - embedding


def _best(runs: SeedNumbers, name: str) -> float:
    return max(sweep(runs[TRAINED], name).values())


# Layer 0 is the embedding, which encodes the word but not the sentence: the gender of the noun of "it" can only be
# guessed there. With 150 test sentences the standard error is 0.04, with 500 it is 0.02, so 0.15 is a gain and 0.04 is
# none. A simple property is "represented early" if the embedding has it and the last layer does not improve on it.
RULE = DecisionRule(
    (
        Requirement('later layers represent the gender of the noun of "it", the embedding does not (accuracy gained)',
                    lambda runs: _gain(runs, ANTECEDENT), 0.15, 0.04, "four standard errors are a gain, one is not"),
        Requirement("they represent it better than a random gender, which a probe can only memorize (difference in "
                    "accuracy)",
                    lambda runs: _best(runs, ANTECEDENT) - _best(runs, CONTROL), 0.15, 0.04,
                    "four standard errors are a gain, one is not"),
        Requirement("word identity is represented best by the embedding (accuracy gained by the last layer)",
                    lambda runs: _last_layer_gain(runs, WORD), 0.0, 0.04,
                    "the last layer must not be better than the embedding"),
    )
)  # fmt: skip
INFO = StudyInfo(
    "layers",
    "C12",
    "Stacking: early layers represent simple properties, later ones more complex ones",
    RULE,
    "A linear probe shows which properties can be decoded from a layer, not which of them later layers use.",
    light_conditions=(UNTRAINED,),
)


@dataclass(frozen=True)
class LayerProbingStudy:
    """Linear probes on every layer of a translation encoder."""

    info: StudyInfo = INFO
    minutes: float = 15.0
    seeds: int = 2
    train_size: int = 20_000
    probe_size: int = 1500  # sentences, two thirds to fit the probes and one third to test them
    distance: tuple[int, int] = (2, 15)
    width: int = 128
    layers: int = 4
    decoder_layers: int = 1  # computes its query before it attends to the source, so the encoder has to resolve "it"

    @property
    def conditions(self) -> tuple[str, ...]:
        """A trained and an untrained encoder."""
        return (TRAINED, UNTRAINED)

    @property
    def columns(self) -> Mapping[str, str]:
        """Accuracy of each property at the embedding and at the last layer."""
        ends = {0: "embedding", self.layers: "last layer"}
        return {f"{name}@{layer}": f"{text}, {end}" for name, text in PROPERTIES.items() for layer, end in ends.items()}

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Train on sentences of which half contain a pronoun, then fit the probes."""
        examples = examples_with_pronouns(self.train_size, seed, self.distance)
        shape = transformer_shape(self.width, self.layers, self.decoder_layers, positions="rotary")
        model = train_model(
            context, write_examples(context.folder / "train.tsv", examples), seed, shape,
            tokenizer=TOKENIZER, steps=None if condition == TRAINED else 1,
            training={} if condition == TRAINED else {"learning_rate": 1e-12},
        )  # fmt: skip
        return probe_all(model, grammar_examples(self.probe_size, seed, "test_pronoun", self.distance), seed)

    def charts(self, findings: Findings) -> list[Chart]:
        """Return accuracy by layer."""
        layers = range(self.layers + 1)
        series = [findings.sweep_series(TRAINED, name, layers, text) for name, text in PROPERTIES.items()]
        return [Chart("layers", "Linear probes on each layer of a trained encoder", "layer (0: the embedding)",
                      "accuracy", series)]  # fmt: skip


@dataclass(frozen=True)
class ProbedToken:
    """Position of a token in a sentence, and its label for one property."""

    sentence: int
    position: int
    label: str


def probe_all(model: Model, examples: Sequence[Example], seed: int) -> Numbers:
    """Return the accuracy of every property at every layer."""
    traces = [model.trace(example.source, example.target) for example in examples]
    states = [encoder_states(trace) for trace in traces]
    rng = random.Random(seed)
    tokens: dict[str, list[ProbedToken]] = {name: [] for name in PROPERTIES}
    for index, (example, trace) in enumerate(zip(examples, traces, strict=True)):
        for name, position, label in properties(example, trace, rng):
            tokens[name].append(ProbedToken(index, position, label))
    common = {word for word, _ in Counter(token.label for token in tokens[WORD]).most_common(MAX_WORDS)}
    tokens[WORD] = [token for token in tokens[WORD] if token.label in common]
    split = len(examples) * 2 // 3
    return {
        f"{name}@{layer}": _probe([by_layer[layer] for by_layer in states], labeled, split)
        for name, labeled in tokens.items()
        for layer in range(len(states[0]))
    }


def encoder_states(trace: Trace) -> list[Tensor]:
    """Return states_SD of the embedding and of each encoder layer."""
    states: dict[int, Tensor] = {}
    for stream in trace.residual_streams:
        if stream.name.startswith("encoder"):
            # The last sub-layer of each layer overwrites the earlier ones.
            states[stream.layer] = torch.from_numpy(stream.states_TD).double()
    return [states[layer] for layer in sorted(states)]


def properties(example: Example, trace: Trace, rng: random.Random) -> Iterator[tuple[str, int, str]]:
    """Yield (property, position, label) for a sentence; the position of a word is that of its first token."""
    first: dict[int, int] = {}
    for position, token in enumerate(trace.source):
        if token.word >= 0:
            first.setdefault(token.word, position)
    words = split_words(example.source)
    for index, word in enumerate(words):
        position = first[index]
        yield WORD, position, word.lower()
        if index < MAX_POSITIONS:
            yield POSITION, position, str(index)
        if word in NUMBERS:
            yield NUMBER, position, NUMBERS[word]
    assert example.pronoun is not None
    noun = words[example.pronoun.antecedent].lower()
    if noun in GENDERS:
        yield ANTECEDENT, first[example.pronoun.index], GENDERS[noun]
        yield CONTROL, first[example.pronoun.index], rng.choice("mfn")


def _probe(states: Sequence[Tensor], tokens: Sequence[ProbedToken], split: int) -> float:
    """Return the accuracy on sentences from `split` on of a linear probe fitted on the earlier sentences."""
    names = sorted({token.label for token in tokens})
    train = [token for token in tokens if token.sentence < split]
    test = [token for token in tokens if token.sentence >= split]
    if not train or not test:
        return 0.0
    x_ND = torch.stack([states[token.sentence][token.position] for token in train])
    label_ids = torch.tensor([names.index(token.label) for token in train])
    y_NC = torch.nn.functional.one_hot(label_ids, len(names)).double()
    mean_D = x_ND.mean(0)
    weights_DC = _ridge(x_ND - mean_D, y_NC - y_NC.mean(0))
    test_ND = torch.stack([states[token.sentence][token.position] for token in test]) - mean_D
    predicted_N: list[int] = (test_ND @ weights_DC + y_NC.mean(0)).argmax(1).tolist()
    return sum(names[index] == token.label for index, token in zip(predicted_N, test, strict=True)) / len(test)


def _ridge(x_ND: Tensor, y_NC: Tensor) -> Tensor:
    """Return least squares weights with a penalty proportional to the variance of the states."""
    gram_DD = x_ND.T @ x_ND
    penalty = RIDGE * float(gram_DD.diagonal().mean()) + 1e-9
    regularized_DD = gram_DD + penalty * torch.eye(len(gram_DD), dtype=gram_DD.dtype)
    weights_DC: Tensor = torch.linalg.solve(regularized_DD, x_ND.T @ y_NC)
    return weights_DC
