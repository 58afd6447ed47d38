"""Comparison of two systems on the same test set by paired bootstrap resampling (Koehn 2004).

The test is sacreBLEU's, with its default seed, so the same texts give the same result on every machine.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from clearhead.evaluation.metrics import bleu_metric, check_texts
from clearhead.json_format import JsonResult

SAMPLES = 1000
SIGNIFICANCE_LEVEL = 0.05
MIN_EXAMPLES = 20
"""With fewer sentences, resampling has too little variation and reports nearly every difference as significant."""


@dataclass(frozen=True)
class SystemScore:
    """Score of one system, with the mean of the resampled scores and half the width of their 95 % interval."""

    system: str
    score: float
    mean: float
    margin: float

    def __str__(self) -> str:
        return f"{self.system} {self.score:.2f} ({self.mean:.2f} ± {self.margin:.2f})"


@dataclass(frozen=True)
class MetricComparison:
    """Comparison of two systems by one metric."""

    metric: str
    first: SystemScore
    second: SystemScore
    p_value: float
    """Probability of a difference at least this large if the systems were equally good."""
    signature: str
    examples: int

    @property
    def difference(self) -> float:
        """Return the difference of the scores, positive if the first system scored higher."""
        return self.first.score - self.second.score

    @property
    def is_significant(self) -> bool:
        """Return whether the difference is significant at the 5 % level, over at least 20 examples."""
        return self.p_value < SIGNIFICANCE_LEVEL and self.examples >= MIN_EXAMPLES

    @property
    def verdict(self) -> str:
        """Return a one-sentence summary."""
        if self.difference == 0:
            return f"no difference in {self.metric}"
        better = (self.first if self.difference > 0 else self.second).system
        lead = f"{abs(self.difference):.2f} {self.metric}"
        if self.is_significant:
            return f"{better} is better by {lead} (p = {self.p_value:.3f})"
        if self.examples < MIN_EXAMPLES:
            return f"{better} is ahead by {lead}, but {self.examples} examples are too few ({MIN_EXAMPLES} needed)"
        return f"no significant difference: {better} is ahead by {lead} (p = {self.p_value:.3f})"

    def __str__(self) -> str:
        return f"{self.metric} {self.first}, {self.second}: {self.verdict} {self.signature}"

    def to_json(self) -> dict[str, object]:
        """Return the fields of the JSON output."""
        return {
            "systems": [asdict(self.first), asdict(self.second)],
            "difference": self.difference,
            "p_value": self.p_value,
            "is_significant": self.is_significant,
            "verdict": self.verdict,
            "signature": self.signature,
        }


@dataclass(frozen=True)
class SystemComparison(JsonResult):
    """Comparison of two systems by BLEU and chrF."""

    bleu: MetricComparison
    chrf: MetricComparison
    examples: int

    def __str__(self) -> str:
        return f"{self.bleu}\n{self.chrf}"


def compare_texts(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    *,
    names: tuple[str, str] = ("A", "B"),
    tokenize: str = "13a",
    lowercase: bool = False,
) -> SystemComparison:
    """Return the comparison of two systems' translations of the same sources."""
    check_texts(first, references)
    check_texts(second, references)
    test = PairedTest(
        named_systems=[(names[0], list(first)), (names[1], list(second))],
        metrics={"BLEU": bleu_metric(tokenize, lowercase), "chrF": CHRF(lowercase=lowercase)},
        references=[list(references)],
        test_type="bs",
        n_samples=SAMPLES,
        n_jobs=1,  # takes about a second; a forked process would inherit torch's threads
    )
    signatures, results = test()
    # sacreBLEU appends beta to the name of chrF
    bleu, chrf = (
        _compare(metric, names, results[key], str(signatures[key]), len(references))
        for metric, key in (("BLEU", "BLEU"), ("chrF", "chrF2"))
    )
    return SystemComparison(bleu, chrf, len(references))


def _compare(
    metric: str, names: tuple[str, str], results: Sequence[str | Result], signature: str, examples: int
) -> MetricComparison:
    first, second = results
    assert isinstance(first, Result) and isinstance(second, Result) and second.p_value is not None
    # For equal scores sacreBLEU returns p = 1/1001, since no resampled difference exceeds zero.
    p_value = 1.0 if first.score == second.score else float(second.p_value)
    return MetricComparison(
        metric, _system_score(names[0], first), _system_score(names[1], second), p_value, signature, examples
    )


def _system_score(name: str, result: Result) -> SystemScore:
    assert result.mean is not None and result.ci is not None
    return SystemScore(name, float(result.score), float(result.mean), float(result.ci))
