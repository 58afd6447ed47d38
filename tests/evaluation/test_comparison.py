"""Comparison of two systems, compared with the paired test of sacreBLEU's command line."""

import json
import logging
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.errors import DataError
from clearhead.evaluation.comparison import SystemComparison, compare_texts

WORDS = [
    "the",
    "a",
    "small",
    "green",
    "dog",
    "cat",
    "house",
    "tree",
    "runs",
    "sees",
    "sleeps",
    "and",
    "then",
    "quickly",
]


def make_texts(noise_levels: list[float], sentences: int = 199) -> list[list[str]]:
    """Return references, and for each noise level translations with this fraction of words replaced at random."""
    rng = random.Random(7)
    references = [" ".join(rng.choices(WORDS, k=rng.randint(5, 17))) for _ in range(sentences)]

    def translate(noise: float) -> list[str]:
        return [
            " ".join(rng.choice(WORDS) if rng.random() < noise else word for word in line.split())
            for line in references
        ]

    return [references, *(translate(noise) for noise in noise_levels)]


def numbers(comparison: SystemComparison) -> list[float]:
    """Return the numbers of a comparison in the order of sacreBLEU's table."""
    by_metric = (comparison.bleu, comparison.chrf)
    firsts = [x for it in by_metric for x in (it.first.score, it.first.mean, it.first.margin)]
    seconds = [x for it in by_metric for x in (it.second.score, it.second.mean, it.second.margin, it.p_value)]
    return firsts + seconds


def test_scores_intervals_and_p_values_equal_the_command_line_of_sacrebleu(tmp_path: Path) -> None:
    references, first, second = make_texts([0.20, 0.22])
    for name, lines in (("ref", references), ("x", first), ("y", second)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ["-m", "bleu", "chrf", "--paired-bs", "-f", "latex", "-w", "6"]
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", "x", "y", *options]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, encoding="utf-8").stdout
    table = output.split(r"\midrule")[1].split(r"\bottomrule")[0]
    comparison = compare_texts(first, second, references)
    printed = [float(number) for number in re.findall(r"\d+\.\d+", table)]
    assert numbers(comparison) == pytest.approx(printed, abs=6e-5, rel=0)  # p-values have four decimals
    assert comparison.bleu.signature in output and comparison.chrf.signature in output
    assert 0.01 < comparison.bleu.p_value < 0.99  # equality at 0 or 1 would prove little


def test_large_difference_is_significant_and_names_the_better_system() -> None:
    references, good, bad = make_texts([0.1, 0.3])
    ahead, behind = compare_texts(good, bad, references, names=("new", "old")), compare_texts(bad, good, references)
    assert ahead.bleu.is_significant and ahead.chrf.is_significant
    assert re.fullmatch(r"new is better by \d+\.\d\d BLEU \(p = 0\.001\)", ahead.bleu.verdict)
    assert behind.chrf.verdict.startswith("B is better by ")
    assert ahead.bleu.difference == -behind.bleu.difference > 0


def test_small_difference_is_not_significant() -> None:
    references, first, second = make_texts([0.2, 0.2])
    comparison = compare_texts(first, second, references)
    assert comparison.bleu.difference != 0
    assert not comparison.bleu.is_significant
    assert comparison.bleu.verdict.startswith("no significant difference: ")


def test_a_system_does_not_differ_from_itself() -> None:
    references, system = make_texts([0.2])
    comparison = compare_texts(system, system, references)
    assert (comparison.bleu.p_value, comparison.bleu.verdict) == (1.0, "no difference in BLEU")
    assert not comparison.chrf.is_significant


@pytest.mark.parametrize("sentences", [1, 2, 19])
def test_few_sentences_are_never_significant(sentences: int) -> None:
    references, good, bad = make_texts([0.0, 0.9], sentences)
    comparison = compare_texts(good, bad, references)
    assert not comparison.bleu.is_significant
    assert f"{sentences} examples are too few" in comparison.bleu.verdict


def test_json_output() -> None:
    references, first, second = make_texts([0.1, 0.3])
    comparison = compare_texts(first, second, references)
    record = json.loads(json.dumps(comparison.to_json()))
    assert record["examples"] == 199
    assert record["chrf"]["systems"][1] == {
        "system": "B",
        "score": comparison.chrf.second.score,
        "mean": comparison.chrf.second.mean,
        "margin": comparison.chrf.second.margin,
    }
    assert record["bleu"]["is_significant"] is True
    assert record["bleu"].keys() == {"systems", "difference", "p_value", "is_significant", "verdict", "signature"}


def test_it_is_repeatable_and_silent(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    references, first, second = make_texts([0.20, 0.22])
    with caplog.at_level(logging.WARNING):
        assert compare_texts(first, second, references) == compare_texts(first, second, references)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_unequal_lengths_are_rejected() -> None:
    with pytest.raises(DataError, match="1 hypotheses and 2 references"):
        compare_texts(["a", "b"], ["a"], ["a", "b"])
