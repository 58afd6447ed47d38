"""Decoding options of `translate` and of the Python API, alignments, and large inputs."""

import io
import itertools
import json
import sys
from pathlib import Path

import pytest

import clearhead
from clearhead.cli.main import main
from clearhead.cli.stdin_batches import MAX_LINES, batches, with_progress
from clearhead.tasks.lexical_constraints import contains_word
from tests.trained_model import Trained

LINES = ["The dog sees the cat.", "A child laughs.", "The old king sleeps."]


@pytest.fixture
def translate(trained: Trained, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Return a function that runs the command on lines and returns its output, or its last error line."""

    def run(*options: str, lines: list[str] = LINES) -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(f"{line}\n" for line in lines).encode())))
        code = main(["translate", str(trained.folder), "--threads", "1", *options])
        captured = capsys.readouterr()
        assert code in (0, 2) and (captured.out == "" or code == 0)
        return captured.err.splitlines()[-1] if code else captured.out

    return run


def test_constraints_hold_in_every_line(translate, trained: Trained) -> None:  # type: ignore[no-untyped-def]
    options = ["--prefix", "Der", "--include", "Katze", "--include", "alten Mann", "--exclude", "Hund", "--json"]
    records = [json.loads(line) for line in translate(*options, "--n-best", "2").splitlines()]
    assert len(records) == 3
    for record in records:
        assert record["unmet_constraints"] == [] and len(record["n_best"]) == 2
        for one in record["n_best"]:
            assert one["text"].startswith("Der") and contains_word(one["text"], "Katze")
            assert contains_word(one["text"], "alten Mann") and not contains_word(one["text"], "Hund")
    model = clearhead.load(trained.folder)
    found = model.translate_many(LINES, prefix="Der", include=["Katze", "alten Mann"], exclude=["Hund"])
    assert [one.text for one in found] == [record["text"] for record in records]


def test_unmet_constraints_are_reported(translate) -> None:  # type: ignore[no-untyped-def]
    """A rule prevents the words although the length limit allows them; an empty line stays empty."""
    options = ["--include", "Katze", "--set", "decoding.no_repeat_ngram_size=1", "--prefix", "Katz und", "--json"]
    records = [json.loads(line) for line in translate(*options, lines=[LINES[0], ""]).splitlines()]
    assert records[1]["text"] == "" and records[1]["unmet_constraints"] == ["Katz und", "Katze"]
    assert all(("Katze" in record["unmet_constraints"]) != contains_word(record["text"], "Katze") for record in records)


def test_samples_are_the_same_alone_and_again(translate) -> None:  # type: ignore[no-untyped-def]
    options = ["--sample", "--seed", "4", "--n-best", "2", "--set", "decoding.sampling.top_k=20"]
    together = translate(*options).splitlines()
    assert len(together) == 6 and len(set(together)) > 3
    alone = [line for one in LINES for line in translate(*options, lines=[one]).splitlines()]
    assert alone == together
    assert translate("--sample", "--seed", "5").splitlines() != together[::2]


@pytest.mark.parametrize("options", [["--beam", "1"], ["--beam", "3"], ["--sample"]])
def test_streamed_parts_join_to_the_translation(translate, options: list[str]) -> None:  # type: ignore[no-untyped-def]
    whole = translate(*options)
    assert translate(*options, "--stream") == whole
    lines = [json.loads(line) for line in translate(*options, "--stream", "--json").splitlines()]
    texts, parts = [], ""
    for line in lines:
        parts += line.get("part", "")
        if "text" in line:
            texts.append(line["text"])
            assert parts == line["text"]
            parts = ""
    assert texts == whole.splitlines()
    if options != ["--beam", "3"]:
        assert len(lines) > 3 * len(texts), "token by token"


def test_alternatives_differ_at_the_position_only(translate, trained: Trained) -> None:  # type: ignore[no-untyped-def]
    model = clearhead.load(trained.folder)
    for line in LINES:
        best = model.translate(line)
        found = model.alternatives(line, 1, 4)
        assert len(found) == 4
        assert {one.tokens[:1] for one in found} == {best.tokens[:1]}
        chosen = [one.tokens[1:2] for one in found]
        assert len(set(chosen)) == 4 and best.tokens[1:2] in chosen
        next_log_probs = [one.token_log_probs[1] for one in found]
        assert next_log_probs == sorted(next_log_probs, reverse=True)
        greedy, found_greedily = model.translate(line, beam_size=1), model.alternatives(line, 1, 4, beam_size=1)
        same = next(one for one in found_greedily if one.tokens[1:2] == greedy.tokens[1:2])
        assert same.tokens == greedy.tokens  # after the position a larger beam may find another continuation
        assert same.log_prob == pytest.approx(greedy.log_prob, abs=1e-4)
    shown = translate("--alternatives-at", "1", "--n-best", "4").splitlines()
    assert shown[-4:] == [one.text for one in found]
    assert translate("--alternatives-at", "99") == "\n" * len(LINES)


def test_n_best_is_filled_up_with_empty_lines(translate, trained: Trained) -> None:  # type: ignore[no-untyped-def]
    """Empty lines have one translation and diverse groups may find duplicates; the number of lines is constant."""
    same = ["--set", "decoding.beam_groups=4", "--set", "decoding.diversity_penalty=0", "--n-best", "3"]
    lines = translate(*same, lines=["", LINES[0], "", LINES[1]]).split("\n")[:-1]
    model = clearhead.load(trained.folder)
    decoding = model.decoding(beam_groups=4, diversity_penalty=0.0)
    found = model.translate_n_best([LINES[0], LINES[1]], 3, decoding)
    assert [len(each) for each in found] == [1, 1], "four times the greedy translation"
    assert lines == ["", "", "", found[0][0].text, "", "", "", "", "", found[1][0].text, "", ""]
    assert len(translate(*same, "--json", lines=["", LINES[0]]).splitlines()) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--beam", "0"], "decoding.beam_size=0"),
        (["--n-best", "5"], "needs a beam size of at least 5"),
        (["--set", "decoding.beam_groups=3"], "beam_groups=3 does not divide beam_size=4"),
        (["--include", "Hund", "--exclude", "Hund"], "contradicts decoding.include='Hund'"),
        (["--set", "decoding.min_length=900"], "decoding.min_length=900 cannot be met"),
        (["--set", "decoding.no_repeat=2"], "did you mean decoding.no_repeat_ngram_size?"),
        (["--stream", "--n-best", "2"], "--stream prints one translation"),
        (["--stream", "--alternatives-at", "0"], "--stream prints one translation; leave out --n-best and --alt"),
    ],
)
def test_user_errors_are_one_line(translate, options: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    assert message in translate(*options)


def test_lines_are_read_lazily() -> None:
    """Only a few batches of an endless input are read ahead; batches are complete and in order."""
    numbers = itertools.count()
    groups = with_progress(batches(str(next(numbers)) for _ in itertools.count()))
    for group in range(3):
        assert next(iter(groups)) == [str(group * MAX_LINES + place) for place in range(MAX_LINES)]
    assert next(numbers) <= 7 * MAX_LINES


def test_alignments_in_pharaoh_format(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = tmp_path / "gold.jsonl"
    assert main(["data", "grammar", "--pairs", "25", "--split", "valid", "--out", str(gold)]) == 0
    capsys.readouterr()
    command = ["align", str(trained.folder), str(gold), "--gold", str(gold)]
    assert main(command) == 0
    captured = capsys.readouterr()
    chosen = captured.err.splitlines()[-1]
    records = [json.loads(line) for line in gold.read_text(encoding="utf-8").splitlines()]
    expected = {(number, *link) for number, record in enumerate(records) for link in record["alignment"]}
    found = {
        (number, *map(int, link.split("-")))
        for number, line in enumerate(captured.out.splitlines())
        for link in line.split()
    }
    rate = 1 - 2 * len(found & expected) / (len(found) + len(expected))
    assert f"alignment error rate {rate:.4f} on 25 pairs" in chosen
    rates = {}
    for layer, head in itertools.product(("0", "1"), ("0", "1", "")):
        fixed = ["align", str(trained.folder), str(gold), "--layer", layer, *(["--head", head] if head else [])]
        assert main(fixed) == 0
        links = {(n, *map(int, link.split("-"))) for n, line in enumerate(capsys.readouterr().out.splitlines())
                 for link in line.split()}  # fmt: skip
        rates[layer, head] = 1 - 2 * len(links & expected) / (len(links) + len(expected))
    assert min(rates.values()) == pytest.approx(rate), "the best of all was chosen"
    assert main([*command[:3], "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[0])
    assert len({link[1] for link in record["alignment"]}) == len(record["target_words"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layer", "9"], "expected a layer from 0 to 1 and a head from 0 to 1, got cross.9"),
        (["--head", "1"], "--head needs --layer"),
        (["--gold", "{bad}"], 'bad.jsonl:1: expected as "alignment" a list of pairs'),
        (["--gold", "{beyond}"], "beyond.jsonl:1: the alignment refers to words beyond the 1 source words"),
        (["--gold", "{bad}", "--layer", "1"], "leave out --layer"),
    ],
)
def test_impossible_alignments_are_refused(
    options: list[str], message: str, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.jsonl").write_text('{"source": "a", "target": "b", "alignment": [[0]]}\n')
    (tmp_path / "beyond.jsonl").write_text('{"source": "a", "target": "b", "alignment": [[0, 1]]}\n')
    paths = {"bad": tmp_path / "bad.jsonl", "beyond": tmp_path / "beyond.jsonl"}
    arguments = [option.format(**paths) for option in options]
    assert main(["align", str(trained.folder), str(trained.test), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err.splitlines()[-1]
