"""Is one system better than another on the same test, or is the difference chance?

Paired bootstrap resampling (Koehn 2004), as sacreBLEU implements it, with its default seed: the same texts give the
same answer on every machine.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from clearhead.evaluation.metrics import bleu_metric, check_texts

SAMPLES = 1000
LEVEL = 0.05
MIN_EXAMPLES = 20
"""Below this many sentences resampling sees too little variation, and calls nearly every difference significant."""


@dataclass(frozen=True)
class SystemScore:
    """What one system scored, and over the resamples: the mean, and the half width of the 95 % interval around it."""

    system: str
    score: float
    mean: float
    margin: float

    def __str__(self) -> str:
        return f"{self.system} {self.score:.2f} ({self.mean:.2f} ± {self.margin:.2f})"


@dataclass(frozen=True)
class MetricComparison:
    """Two systems by one metric."""

    metric: str
    first: SystemScore
    second: SystemScore
    p_value: float
    """How often chance alone makes a difference as large as this one."""
    signature: str
    examples: int

    @property
    def difference(self) -> float:
        """Positive when the first system scored higher."""
        return self.first.score - self.second.score

    @property
    def is_significant(self) -> bool:
        """Whether the difference can be believed."""
        return self.p_value < LEVEL and self.examples >= MIN_EXAMPLES

    @property
    def verdict(self) -> str:
        """One sentence for people."""
        if self.difference == 0:
            return f"no difference in {self.metric}"
        better = (self.first if self.difference > 0 else self.second).system
        lead = f"{abs(self.difference):.2f} {self.metric}"
        if self.is_significant:
            return f"{better} is better by {lead} (p = {self.p_value:.3f})"
        if self.examples < MIN_EXAMPLES:
            return (
                f"{better} is ahead by {lead}, but {self.examples} examples are too few to tell ({MIN_EXAMPLES} needed)"
            )
        return f"no significant difference: {better} is ahead by {lead} (p = {self.p_value:.3f})"

    def __str__(self) -> str:
        return f"{self.metric} {self.first}, {self.second}: {self.verdict} {self.signature}"

    def to_json(self) -> dict[str, object]:
        """The comparison as JSON output holds it."""
        return {
            "systems": [asdict(self.first), asdict(self.second)],
            "difference": self.difference,
            "p_value": self.p_value,
            "is_significant": self.is_significant,
            "verdict": self.verdict,
            "signature": self.signature,
        }


@dataclass(frozen=True)
class SystemComparison:
    """Two systems by BLEU and chrF."""

    bleu: MetricComparison
    chrf: MetricComparison
    examples: int

    def __str__(self) -> str:
        return f"{self.bleu}\n{self.chrf}"

    def to_json(self) -> dict[str, object]:
        """The comparison as JSON output holds it."""
        return {"bleu": self.bleu.to_json(), "chrf": self.chrf.to_json(), "examples": self.examples}


def compare_texts(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    *,
    names: tuple[str, str] = ("A", "B"),
    tokenize: str = "13a",
    lowercase: bool = False,
) -> SystemComparison:
    """Compare two systems' translations of the same source lines."""
    check_texts(first, references)
    check_texts(second, references)
    test = PairedTest(
        named_systems=[(names[0], list(first)), (names[1], list(second))],
        metrics={"BLEU": bleu_metric(tokenize, lowercase), "chrF": CHRF(lowercase=lowercase)},
        references=[list(references)],
        test_type="bs",
        n_samples=SAMPLES,
        n_jobs=1,  # in this process: it takes a second, and a fork would inherit torch's threads
    )
    signatures, results = test()
    # sacreBLEU names its chrF after its beta: chrF2
    bleu, chrf = (
        _compare(shown, names, results[key], str(signatures[key]), len(references))
        for shown, key in (("BLEU", "BLEU"), ("chrF", "chrF2"))
    )
    return SystemComparison(bleu, chrf, len(references))


def _compare(
    metric: str, names: tuple[str, str], results: Sequence[str | Result], signature: str, examples: int
) -> MetricComparison:
    first, second = results
    assert isinstance(first, Result) and isinstance(second, Result) and second.p_value is not None
    # For equal scores sacreBLEU answers p = 1/1001: no resample differs by more than nothing.
    p_value = 1.0 if first.score == second.score else float(second.p_value)
    return MetricComparison(
        metric, _system_score(names[0], first), _system_score(names[1], second), p_value, signature, examples
    )


def _system_score(name: str, result: Result) -> SystemScore:
    assert result.mean is not None and result.ci is not None
    return SystemScore(name, float(result.score), float(result.mean), float(result.ci))
