"""C3: the fixed context vector of plain seq2seq is the bottleneck; attention repairs it. BLEU by source length."""

from collections.abc import Mapping
from dataclasses import dataclass

from clearhead.evaluation.metrics import bleu
from clearhead.study.claims.parallelism import at
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.protocol import Findings, StudyContext, StudyInfo
from clearhead.study.harness.training import TOKENIZER, of_length, pairs, sentences, train, write_examples
from clearhead.study.harness.verdict import DecisionRule, Numbers, Requirement, Seen

WITHOUT, WITH = "without attention", "with attention"


def _fall(seen: Seen, condition: str) -> float:
    """BLEU lost from the shortest sentences to the longest."""
    row = at(seen[condition], "bleu")
    return row[min(row)] - row[max(row)]


def _gap(seen: Seen) -> float:
    longest = max(at(seen[WITH], "bleu"))
    return seen[WITH][f"bleu@{longest}"] - seen[WITHOUT][f"bleu@{longest}"]


# Five BLEU are a difference that a reader of translations sees, one is not. "Repairs" is taken to be that with
# attention not more than half of the fall is left.
RULE = DecisionRule(
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
ABOUT = StudyInfo(
    "bottleneck",
    "C3",
    "The fixed context vector of plain seq2seq is the bottleneck: quality falls with sentence length, attention "
    "repairs it",
    RULE,
    "LSTMs of one width on the built-in grammar, equal time to train.",
)


@dataclass(frozen=True)
class Bottleneck:
    """An LSTM with and without attention."""

    about: StudyInfo = ABOUT
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
        file = write_examples(bench.folder / "train.tsv", sentences(self.pairs, seed))
        shape = {"family": "lstm", "attention": "none" if condition == WITHOUT else "additive",
                 "model_dim": self.width, "num_encoder_layers": 1, "num_decoder_layers": 1}  # fmt: skip
        model = train(bench, file, seed, shape, tokenizer=TOKENIZER, decoding={"beam_size": 1})
        found = {}
        for low, high in self.bins:
            examples = of_length(self.tested, seed, "test", low, high)
            written = [one.text for one in model.translate_pairs(pairs(examples))]
            found[f"bleu@{low}"] = bleu(written, [one.target for one in examples]).value
        return found

    def charts(self, found: Findings) -> list[Chart]:
        """BLEU by length."""
        series = [Series(kind, [(x, found.values(kind, f"bleu@{low}")) for x, (low, _) in enumerate(self.bins)])
                  for kind in self.conditions]  # fmt: skip
        ticks = [f"{low} to {high}" for low, high in self.bins]
        return [Chart("bottleneck", "An LSTM with and without attention", "words in the source", "BLEU", series,
                      ticks=ticks)]  # fmt: skip
