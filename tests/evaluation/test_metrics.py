"""Scores compared with sacreBLEU's command line, and the format of reports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.errors import ConfigError, DataError
from clearhead.evaluation.metrics import Score, bleu, chrf, evaluate_texts, exact_match

REFERENCES = ["Der Hund läuft schnell .", "Ein kleines, grünes Haus steht da!", "I saw 3,000 cats; none saw me.", ""]
HYPOTHESES = ["Der hund läuft schnell .", "Ein grünes Haus steht dort!", "I saw 3,000 cats; none saw me. ", "zu viel"]


def command_line(folder: Path, *options: str) -> list[dict[str, object]]:
    """Return the scores of the `sacrebleu` command for the same texts."""
    (folder / "hyp.txt").write_text("\n".join(HYPOTHESES) + "\n", encoding="utf-8")
    (folder / "ref.txt").write_text("\n".join(REFERENCES) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "ref.txt", "-i", "hyp.txt", "-m", "bleu", "chrf", "-w", "9"]
    output = subprocess.run([*command, *options], cwd=folder, capture_output=True, check=True).stdout
    scores: list[dict[str, object]] = json.loads(output)
    return scores


@pytest.mark.parametrize(("tokenize", "lowercase"), [("13a", False), ("intl", True), ("char", False)])
def test_scores_and_signatures_equal_the_command_line_of_sacrebleu(
    tmp_path: Path, tokenize: str, lowercase: bool
) -> None:
    expected_bleu, expected_chrf = command_line(
        tmp_path, "-tok", tokenize, *(["-lc", "--chrf-lowercase"] if lowercase else [])
    )
    report = evaluate_texts(HYPOTHESES, REFERENCES, tokenize=tokenize, lowercase=lowercase)
    for score, expected in ((report.bleu, expected_bleu), (report.chrf, expected_chrf)):
        assert score.value == pytest.approx(expected["score"], abs=1e-8)
        assert score.signature == expected["signature"]
    assert 0 < report.bleu.value < 100  # equality at 0 or 100 would prove little


def test_a_perfect_translation_scores_100() -> None:
    report = evaluate_texts(REFERENCES, REFERENCES)
    assert report.bleu.value == pytest.approx(100)
    assert report.chrf.value == pytest.approx(100)
    assert report.exact_match == 1


def test_exact_match_ignores_only_surrounding_white_space() -> None:
    assert exact_match(HYPOTHESES, REFERENCES) == 1 / 4
    assert exact_match(["a b", "a  b", "A b"], ["a b\n"] * 3) == 1 / 3


def test_report_as_json_and_as_text() -> None:
    report = evaluate_texts(["a b c d e"], ["a b c d e"], perplexity=1.5)
    assert json.loads(json.dumps(report.to_json())) == {
        "bleu": {"score": pytest.approx(100), "signature": report.bleu.signature},
        "chrf": {"score": pytest.approx(100), "signature": report.chrf.signature},
        "exact_match": 1.0,
        "perplexity": 1.5,
        "examples": 1,
        "outputs": {"examples": 1, "loops": 0, "copies": None},
    }
    lines = str(report).splitlines()
    assert lines[0] == f"BLEU 100.00 {report.bleu.signature}"
    assert lines[1] == f"chrF 100.00 {report.chrf.signature}"
    assert "perplexity 1.500" in lines
    assert "perplexity" not in str(evaluate_texts(["a"], ["a"]))


def test_a_score_prints_two_decimals() -> None:
    assert str(Score("BLEU", 97.314, "nrefs:1|tok:13a")) == "BLEU 97.31 nrefs:1|tok:13a"


@pytest.mark.parametrize("score", [bleu, chrf, exact_match, evaluate_texts])
@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [([], [], "at least one pair"), (["a"], ["a", "b"], "1 hypotheses and 2 references"), (["a"], [], "0 references")],
)
def test_empty_and_unequal_texts_are_rejected(
    score: object, hypotheses: list[str], references: list[str], message: str
) -> None:
    assert callable(score)
    with pytest.raises(DataError, match=message):
        score(hypotheses, references)


@pytest.mark.parametrize("tokenize", ["flores200", "13A"])
def test_tokenizers_that_need_the_network_or_do_not_exist_are_rejected(tokenize: str) -> None:
    with pytest.raises(ConfigError, match=f"{tokenize}.*expected one of 13a, intl"):
        bleu(["a"], ["a"], tokenize=tokenize)


def test_text_that_looks_tokenised_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    bleu(["ends so ."] * 200, ["ends so ."] * 200)  # sacreBLEU warns from 100 such lines
    assert not caplog.records
