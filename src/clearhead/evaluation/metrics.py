"""Scores of generated texts against references: BLEU and chrF with sacreBLEU's signatures, and exact match.

The reports also count degenerate outputs: repetition loops and untranslated copies of the source.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from clearhead.errors import ConfigError, DataError
from clearhead.json_format import JsonResult

MIN_COPY_WORDS = 3  # shorter outputs are not copies: names and numbers are often the same in both languages
MIN_COPY_CHARACTERS = 20  # the same limit for scripts without spaces
# Matches a unit of 2 to 40 characters that occurs four or more times in a row, or a character that does so eight times.
LOOP = re.compile(r"(.{2,40}?)\1{3,}|(.)\2{7,}", re.DOTALL)


@dataclass(frozen=True)
class OutputCounts(JsonResult):
    """Numbers of degenerate outputs among the decoded texts."""

    examples: int
    loops: int
    """Outputs that contain a repetition loop where the reference contains none."""
    copies: int | None = None
    """Outputs equal to a source of several words from which the reference differs; None if the source is not text."""

    def __str__(self) -> str:
        lines = [f"repetition loops {self.loops:,} of {self.examples:,}"]
        if self.copies is not None:
            lines.append(f"untranslated copies {self.copies:,} of {self.examples:,}")
        return "\n".join(lines)

    @property
    def summary(self) -> str:
        """Return the nonzero counts as a phrase, "" if all are zero."""
        counts = {("repetition loop", "repetition loops"): self.loops,
                  ("untranslated copy", "untranslated copies"): self.copies or 0}  # fmt: skip
        return ", ".join(f"{count:,} {names[count != 1]}" for names, count in counts.items() if count)


def has_loop(text: str) -> bool:
    """Return whether a unit of characters is repeated in a row, as `LOOP` defines it."""
    return LOOP.search(f" {text}") is not None  # the space makes the first word match like the others


def is_copy(output: str, source: str) -> bool:
    """Return whether an output equals its source, up to white space, and the source is longer than a name."""
    words = source.split()
    is_long = len(words) >= MIN_COPY_WORDS or len(source) >= MIN_COPY_CHARACTERS
    return is_long and output.split() == words


def count_outputs(
    outputs: Sequence[str], references: Sequence[str], sources: Sequence[str] | None = None
) -> OutputCounts:
    """Count degenerate outputs, except loops and copies that the reference also contains."""
    loops = sum(has_loop(out) and not has_loop(ref) for out, ref in zip(outputs, references, strict=True))
    if sources is None:
        return OutputCounts(len(outputs), loops)
    copies = sum(
        is_copy(out, source) and not is_copy(ref, source)
        for out, ref, source in zip(outputs, references, sources, strict=True)
    )
    return OutputCounts(len(outputs), loops, copies)


TOKENIZERS = ("13a", "intl", "char", "zh", "none")
"""Tokenizers of sacreBLEU that need neither a download nor another package."""


@dataclass(frozen=True)
class Score:
    """Corpus score; scores are comparable only if their signatures are equal."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} {self.signature}"

    def to_json(self) -> "ScoreJson":
        """Return the fields of the JSON output."""
        return {"score": self.value, "signature": self.signature}


class ScoreJson(TypedDict):
    """Score in JSON output."""

    score: float
    signature: str


class ReportJson(TypedDict):
    """Report in JSON output."""

    bleu: ScoreJson
    chrf: ScoreJson
    exact_match: float
    perplexity: float | None
    examples: int
    outputs: dict[str, int | None]


@dataclass(frozen=True)
class TranslationReport:
    """All scores of one test set."""

    bleu: Score
    chrf: Score
    exact_match: float
    """Fraction of hypotheses that equal their reference."""
    perplexity: float | None
    """Perplexity of the references under the model, None if it was not measured."""
    examples: int
    outputs: OutputCounts
    """Repetition loops and untranslated copies among the hypotheses."""

    def __str__(self) -> str:
        lines = [str(self.bleu), str(self.chrf), f"exact match {100 * self.exact_match:.2f} %"]
        if self.perplexity is not None:
            lines.append(f"perplexity {self.perplexity:.3f}")
        return "\n".join([*lines, str(self.outputs), f"examples {self.examples}"])

    def to_json(self) -> ReportJson:
        """Return the fields of the JSON output."""
        return {
            "bleu": self.bleu.to_json(),
            "chrf": self.chrf.to_json(),
            "exact_match": self.exact_match,
            "perplexity": self.perplexity,
            "examples": self.examples,
            "outputs": self.outputs.to_json(),
        }


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", lowercase: bool = False) -> Score:
    """Return the corpus BLEU of untokenised text, equal to that of sacreBLEU's command line."""
    check_texts(hypotheses, references)
    return _corpus_score("BLEU", bleu_metric(tokenize, lowercase), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False) -> Score:
    """Return the corpus chrF (character order 6, word order 0, beta 2), equal to that of sacreBLEU's command line."""
    check_texts(hypotheses, references)
    return _corpus_score("chrF", CHRF(lowercase=lowercase), hypotheses, references)


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the fraction of hypotheses that equal their reference up to surrounding white space."""
    check_texts(hypotheses, references)
    equal = sum(hyp.strip() == ref.strip() for hyp, ref in zip(hypotheses, references, strict=True))
    return equal / len(hypotheses)


def evaluate_texts(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    perplexity: float | None = None,
    sources: Sequence[str] | None = None,
) -> TranslationReport:
    """Return all scores; `perplexity` is copied to the report, and `sources` are needed to count copies."""
    return TranslationReport(
        bleu=bleu(hypotheses, references, tokenize, lowercase),
        chrf=chrf(hypotheses, references, lowercase),
        exact_match=exact_match(hypotheses, references),
        perplexity=perplexity,
        examples=len(hypotheses),
        outputs=count_outputs(hypotheses, references, sources),
    )


def check_texts(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise DataError for empty texts or unequal numbers of texts."""
    if len(hypotheses) != len(references):
        raise DataError(
            f"expected one hypothesis for each reference, found {len(hypotheses)} hypotheses and "
            f"{len(references)} references; check for a missing line or an additional line break"
        )
    if not references:
        raise DataError("expected at least one pair of hypothesis and reference, found none")


def bleu_metric(tokenize: str, lowercase: bool) -> BLEU:
    """Return sacreBLEU's metric; `force` only suppresses its warning that the text looks tokenised."""
    if tokenize not in TOKENIZERS:
        raise ConfigError(f"unknown BLEU tokenizer {tokenize!r}; expected one of {', '.join(TOKENIZERS)}")
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)


def _corpus_score(name: str, metric: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(name, float(value), str(metric.get_signature()))
