"""C9: several heads attend to different things; one head is worse, too many is worse too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clearhead.api import Model
from clearhead.grammar import Example
from clearhead.inspection.analyses.head_importance import head_importance
from clearhead.inspection.analyses.head_statistics import head_statistics
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.protocol import Findings, StudyContext, StudyInfo
from clearhead.study.harness.training import TOKENIZER, nats, sentences, train, write_examples
from clearhead.study.harness.verdict import DecisionRule, Numbers, Requirement, Seen

CUTS = (25, 50, 75)  # per cent of the heads


def _losses(seen: Seen) -> dict[int, float]:
    return {int(name): numbers["nats"] for name, numbers in seen.items()}


def _above_best(seen: Seen, which: str) -> float:
    """How much worse the fewest or the most heads are than the best number between them, in nats."""
    found = _losses(seen)
    few, many = min(found), max(found)
    between = [value for count, value in found.items() if count not in (few, many)]
    if not between:
        raise KeyError("too few numbers of heads")
    return found[few if which == "few" else many] - min(between)


def _middle(seen: Seen) -> Numbers:
    """The model with the second most heads: several, and not too many."""
    counts = sorted(map(int, seen))
    return seen[str(counts[-2 if len(counts) > 1 else -1])]


# The paper's table 3, rows A: perplexity 5.29 with 1 head against 4.91 to 4.92 with 8 and 16, 0.07 nats; 5.01 with 32,
# 0.02 nats. So 0.02 nats is what "worse" is worth there; at or below 0 it is not worse. Heads are different where the
# nearest and the farthest look 2 places apart in the mean, and alike within half a place.
RULE = DecisionRule(
    (
        Requirement("one head is worse than the best number (nats a token)",
                    lambda seen: _above_best(seen, "few"), 0.02, 0.0, "the size of the paper's own differences"),
        Requirement("the most heads are worse than the best number (nats a token)",
                    lambda seen: _above_best(seen, "many"), 0.02, 0.0, "the size of the paper's own differences"),
        Requirement("some heads look far, some near (places between the farthest and the nearest of a model)",
                    lambda seen: _middle(seen)["farthest"] - _middle(seen)["nearest"], 2.0, 0.5,
                    "two words apart is another thing, half a word is not"),
    )
)  # fmt: skip
ABOUT = StudyInfo(
    "heads",
    "C9",
    "Several heads attend to different things (some far, some near); one head is worse; too many is worse too",
    RULE,
    "Width, cost and time to train are the same for each number of heads.",
)


@dataclass(frozen=True)
class Heads:
    """The paper's table 3, rows A, in small."""

    about: StudyInfo = ABOUT
    minutes: float = 15.0
    seeds: int = 2
    counts: tuple[int, ...] = (1, 2, 4, 8, 16)
    pairs: int = 20_000
    tested: int = 300
    looked_at: int = 30
    width: int = 64
    layers: int = 2

    @property
    def conditions(self) -> tuple[str, ...]:
        """Numbers of heads."""
        return tuple(map(str, self.counts))

    @property
    def columns(self) -> Mapping[str, str]:
        """Quality, what heads look at, and what is left when they are cut."""
        return {"nats": "nats a token", "nearest": "nearest head, places", "farthest": "farthest",
                "sharpest": "lowest entropy", **{f"cut@{cut}": f"nats, {cut} % cut" for cut in CUTS}}  # fmt: skip

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """One training; then the least important heads are cut, more and more of them."""
        file = write_examples(bench.folder / "train.tsv", sentences(self.pairs, seed))
        shape = {"model_dim": self.width, "feed_forward_dim": 2 * self.width, "num_heads": int(condition),
                 "num_encoder_layers": self.layers, "num_decoder_layers": self.layers}  # fmt: skip
        model = train(bench, file, seed, shape, tokenizer=TOKENIZER)
        tested = sentences(self.tested, seed, "test")
        few = sentences(self.looked_at, seed, "valid")
        return {"nats": nats(model, tested)} | _statistics(model, few) | self._cut(model, few, tested)

    def _cut(self, model: Model, few: Sequence[Example], tested: Sequence[Example]) -> dict[str, float]:
        """Quality without the least important heads, by Michel et al.'s measure on other sentences."""
        corpus: list[tuple[str, str | None]] = [(one.source, one.target) for one in few]
        ranked = [one.part for one in head_importance(model, corpus, model.config.decoding)]
        found = {}
        for cut in CUTS:
            off = ranked[len(ranked) - max(1, round(len(ranked) * cut / 100)) :]
            found[f"cut@{cut}"] = nats(model.with_ablated(off), tested)
        return found

    def charts(self, found: Findings) -> list[Chart]:
        """Quality by number of heads, and by heads cut."""
        whole = Series("whole", [(count, found.values(str(count), "nats")) for count in self.counts])
        cuts = [Series(f"{cut} % of heads cut", [(count, found.values(str(count), f"cut@{cut}"))
                                                 for count in self.counts]) for cut in CUTS]  # fmt: skip
        spans = [Series(f"{name} head", [(count, found.values(str(count), name)) for count in self.counts])
                 for name in ("nearest", "farthest")]  # fmt: skip
        return [
            Chart("heads", "Quality by number of heads, at constant cost", "heads", "nats a token (lower is better)",
                  [whole, *cuts], log_x=True),
            Chart("heads-distance", "How far heads look in the mean", "heads", "places", spans, log_x=True),
        ]  # fmt: skip


def _statistics(model: Model, examples: Sequence[Example]) -> dict[str, float]:
    """How far the nearest and the farthest head look, and how sharply: each in the mean over some sentences."""
    distances: dict[str, list[float]] = {}
    entropies: dict[str, list[float]] = {}
    for example in examples:
        for one in head_statistics(model.trace(example.source, example.target)):
            entropies.setdefault(str(one.part), []).append(one.entropy)
            if one.distance is not None:
                distances.setdefault(str(one.part), []).append(one.distance)
    far = [sum(values) / len(values) for values in distances.values()]
    sharp = [sum(values) / len(values) for values in entropies.values()]
    return {"nearest": min(far), "farthest": max(far), "sharpest": min(sharp), "flattest": max(sharp)}
