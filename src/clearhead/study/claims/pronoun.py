"""C5: the state of "it" draws on its antecedent. Which heads do that, and what the German pronoun is without them."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from clearhead.api import Model
from clearhead.data.readers.pairs import Pair
from clearhead.grammar import Example, split_words
from clearhead.inspection.analyses.head_statistics import HeadAntecedent, find_antecedents
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.protocol import Findings, StudyContext, StudyInfo
from clearhead.study.harness.training import TOKENIZER, sentences, train, write_examples
from clearhead.study.harness.verdict import DecisionRule, Numbers, Requirement

WHOLE = "transformer"
FORMS = ("er", "sie", "es", "ihn", "ihm", "ihr")  # "it" in every gender and case of the singular

# Heads are chosen on one half of the sentences and measured on the other. A head that picks words by lot finds the
# antecedent with the chance that is measured beside it: three times that is no accident, one and a half times may be.
# When heads are cut something is always lost, hence the same number of other heads by lot: a twentieth of all pronouns
# more is an effect. A model that has not learned the pronoun (fewer than 6 of 10 right, where gender alone by lot gives
# 1 in 3) shows nothing either way: then nothing is decided.
RULE = DecisionRule(
    (
        Requirement("the model has learned the German pronoun (share right among all forms)",
                    lambda seen: seen[WHOLE]["right"], 0.6, -1.0, "else there is nothing to explain"),
        Requirement('some head looks from "it" at its antecedent (times as often as by lot)',
                    lambda seen: seen[WHOLE]["found"] / seen[WHOLE]["chance"], 3.0, 1.5,
                    "three times is no accident"),
        Requirement("cutting these heads costs more pronouns than cutting as many others (share of pronouns)",
                    lambda seen: seen[WHOLE]["right_others_off"] - seen[WHOLE]["right_off"], 0.05, 0.0,
                    "a twentieth of all pronouns is an effect"),
    )
)  # fmt: skip
ABOUT = StudyInfo(
    "pronoun",
    "C5",
    '"The animal didn\'t cross the street because it was too tired": the state of "it" draws on "animal"',
    RULE,
    "A pronoun is right where its sentence is more probable than with any other form of it in its place.",
)


@dataclass(frozen=True)
class PronounStudy:
    """One Transformer, its heads, and what happens without some of them."""

    about: StudyInfo = ABOUT
    minutes: float = 10.0
    seeds: int = 2
    pairs: int = 20_000
    bins: tuple[tuple[int, int], ...] = ((2, 4), (5, 8), (9, 15), (16, 30), (31, 60))
    tested: int = 60  # in each of the bins, half of them to choose heads on
    trained: tuple[int, int] = (2, 30)
    cut: int = 3
    draws: int = 5
    width: int = 128
    layers: int = 3
    decoder_layers: int = 1  # with several the decoder can look up the German noun itself, past the state of "it"

    @property
    def conditions(self) -> tuple[str, ...]:
        """One model."""
        return (WHOLE,)

    @property
    def columns(self) -> Mapping[str, str]:
        """What is right, and what heads find."""
        return {"right": "right", "right_off": "heads cut", "right_others_off": "others cut", "found": "head finds",
                "chance": "by lot"}  # fmt: skip

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """One training on sentences of which half have a pronoun."""
        known = [*sentences(self.pairs // 2, seed), *sentences(self.pairs // 2, seed, "train", self.trained)]
        random.Random(seed).shuffle(known)
        file = write_examples(bench.folder / "train.tsv", known)
        depth = {"num_encoder_layers": self.layers, "num_decoder_layers": self.decoder_layers}
        shape = {
            "model_dim": self.width,
            "feed_forward_dim": 2 * self.width,
            "num_heads": 4,
            "positions": "rotary",
            **depth,
        }
        model = train(bench, file, seed, shape, tokenizer=TOKENIZER)
        by_bin = {low: with_forms(sentences(self.tested, seed, "test_pronoun", (low, high))) for low, high in self.bins}
        chosen_on = [one for examples in by_bin.values() for one in examples[::2]]
        tested = {low: examples[1::2] for low, examples in by_bin.items()}
        return self._look(model, chosen_on, tested, seed)

    def _look(
        self, model: Model, chosen_on: Sequence[Example], tested: Mapping[int, Sequence[Example]], seed: int
    ) -> Numbers:
        ranked = [one.part for one in _finders(model, chosen_on)]
        off, rest = ranked[: self.cut], ranked[self.cut :]
        everything = [one for examples in tested.values() for one in examples]
        finders = {one.part: one for one in _finders(model, everything)}
        draw = random.Random(seed)
        others = [model.with_ablated(draw.sample(rest, min(self.cut, len(rest)))) for _ in range(self.draws)]
        cut_model = model.with_ablated(off)
        found: dict[str, float] = {
            "right": right_share(model, everything),
            "right_off": right_share(cut_model, everything),
            "right_others_off": sum(right_share(one, everything) for one in others) / len(others),
            "found": finders[ranked[0]].found,
            "chance": finders[ranked[0]].chance,
        }
        for place, part in enumerate(off, 1):
            found |= {f"layer_of_cut_{place}": part.layer, f"head_of_cut_{place}": float(part.head or 0)}
        for low, examples in tested.items():
            best = next(one for one in _finders(model, examples) if one.part == ranked[0])
            found |= {f"right@{low}": right_share(model, examples), f"found@{low}": best.found,
                      f"right_off@{low}": right_share(cut_model, examples)}  # fmt: skip
        return found

    def charts(self, found: Findings) -> list[Chart]:
        """By distance."""
        labels = {"right": "pronoun right", "right_off": "right without these heads", "found": "best head on the noun"}
        series = [Series(label, [(x, found.values(WHOLE, f"{name}@{low}")) for x, (low, _) in enumerate(self.bins)])
                  for name, label in labels.items()]  # fmt: skip
        ticks = [f"{low} to {high}" for low, high in self.bins]
        return [Chart("pronoun", '"it" and its noun, by distance', "words between them", "share of the sentences",
                      series, ticks=ticks)]  # fmt: skip


def _finders(model: Model, examples: Sequence[Example]) -> list[HeadAntecedent]:
    """Every head of the encoder, where the state of "it" is made: the one that finds most antecedents first."""
    traces = [model.trace(one.source, one.target) for one in examples]
    found = find_antecedents(traces, [one.pronoun for one in examples if one.pronoun is not None])
    return [one for one in found if one.part.name == "encoder"]


def german_form(example: Example) -> str:
    """What "it" is in the German sentence; empty where it is none of the forms."""
    if example.pronoun is None:
        return ""
    word = split_words(example.target)[example.pronoun.target_index].lower()
    return word if word in FORMS else ""


def with_forms(examples: Sequence[Example]) -> list[Example]:
    """Those whose German pronoun is one of the forms."""
    return [one for one in examples if german_form(one)]


def other_forms(example: Example) -> Iterator[str]:
    """The target with every other form in the place of its pronoun."""
    assert example.pronoun is not None
    words = split_words(example.target)
    start = 0
    for word in words[: example.pronoun.target_index]:
        start = example.target.index(word, start) + len(word)
    gold = words[example.pronoun.target_index]
    start = example.target.index(gold, start)
    for form in FORMS:
        if form != gold.lower():
            shown = form.capitalize() if gold[0].isupper() else form
            yield example.target[:start] + shown + example.target[start + len(gold) :]


def right_share(model: Model, examples: Sequence[Example]) -> float:
    """The share of sentences in which no other form is more probable than the gold one."""
    forced = [
        Pair(one.source, target, line)
        for line, one in enumerate(examples, 1)
        for target in (one.target, *other_forms(one))
    ]
    scores = [one.log_prob for one in model.score(forced)]
    size = len(FORMS)
    rows = [scores[start : start + size] for start in range(0, len(scores), size)]
    return sum(row[0] >= max(row[1:]) for row in rows) / len(rows)
