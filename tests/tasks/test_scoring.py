"""Scores of given outputs equal those of search and those of torch."""

import csv
import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import clearhead
from clearhead.cli.main import main
from clearhead.data.readers.pairs import Pair, load_pairs
from tests.trained_model import Trained


def test_outputs_of_search_have_the_score_of_search(trained: Trained) -> None:
    model = clearhead.load(trained.folder)
    sources = [pair.source for pair in load_pairs([trained.test]).records[:7]]
    translations = model.translate_many(sources)
    pairs = [Pair(source, translation.text, 1) for source, translation in zip(sources, translations, strict=True)]
    for translation, scored in zip(translations, model.score(pairs), strict=True):
        if (
            scored.tokens == translation.tokens and translation.finish_reason == "end"
        ):  # a text may have another segmentation
            assert scored.log_prob == pytest.approx(translation.log_prob, abs=1e-4)
            assert scored.score == pytest.approx(translation.score, abs=1e-4)
            assert scored.token_log_probs == pytest.approx(translation.token_log_probs, abs=1e-4)


def test_the_sum_is_the_cross_entropy_of_the_target(trained: Trained) -> None:
    model = clearhead.load(trained.folder)
    pairs = load_pairs([trained.test]).records[:5]
    for pair, scored in zip(pairs, model.score(pairs), strict=True):
        source, target = (model.tokenizer.encode(text).ids for text in (pair.source, pair.target))
        with torch.inference_mode():
            hidden = model.network(torch.tensor([[*source, 3]]), torch.tensor([[2, *target]]))
            expected = F.cross_entropy(model.network.logits(hidden)[0], torch.tensor([*target, 3]), reduction="sum")
        assert scored.log_prob == pytest.approx(-float(expected), abs=1e-4)
        assert len(scored.token_log_probs) == len(scored.tokens) + 1 == len(target) + 1


def test_score_prints_a_line_per_pair(trained: Trained, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["score", str(trained.folder), str(trained.test)]) == 0
    sums = [float(line) for line in capsys.readouterr().out.splitlines()]
    assert len(sums) == 40 and max(sums) < 0
    assert main(["score", str(trained.folder), str(trained.test), "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["log_prob"] for record in records] == pytest.approx(sums, abs=1e-4)
    assert main(["score", str(trained.folder), str(trained.test), "--per-token"]) == 0
    means = [float(line) for line in capsys.readouterr().out.splitlines()]
    assert means == pytest.approx([r["log_prob"] / len(r["token_log_probs"]) for r in records], abs=1e-4)
    (tmp_path / "long.tsv").write_text("a\t" + "b " * 1500 + "\n", encoding="utf-8")
    assert main(["score", str(trained.folder), str(tmp_path / "long.tsv")]) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--per-token", "--json"], "--per-token has no effect with --json, which prints every token"),
        (["--set", "decoding.length_penalty=1"], "which only --json prints; add --json"),
        (
            ["--json", "--set", "decoding.beam_size=2"],
            "decoding.beam_size has no meaning for clearhead score, which uses length_penalty",
        ),
    ],
)
def test_options_without_effect_are_refused(
    options: list[str], message: str, trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", str(trained.folder), str(trained.test), *options]) == 2
    assert message in capsys.readouterr().err


def test_the_columns_of_a_spreadsheet_are_selected(
    trained: Trained, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = trained.test.read_text(encoding="utf-8").splitlines()[:7]
    plain, table = tmp_path / "plain.tsv", tmp_path / "table.csv"
    plain.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with table.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Nr", "Deutsch", "Englisch"])
        writer.writerows([number, *reversed(line.split("\t"))] for number, line in enumerate(lines))
    columns = ["--columns", "source=Englisch,target=Deutsch"]
    for command, more in (("score", []), ("align", []), ("evaluate", ["--json"])):
        assert main([command, str(trained.folder), str(plain), *more]) == 0
        expected = capsys.readouterr().out
        assert main([command, str(trained.folder), str(table), *more, *columns]) == 0
        shown = capsys.readouterr()
        assert shown.out == expected and "line 1 is the header (Nr, Deutsch, Englisch)" in shown.err
        assert main([command, str(trained.folder), str(table), *more]) == 2
        assert "table.csv:1: expected 2 columns, found 3" in capsys.readouterr().err
    shortlists = [tmp_path / "plain.shortlist", tmp_path / "table.shortlist"]
    assert main(["shortlist", str(trained.folder), str(plain), "--out", str(shortlists[0])]) == 0
    assert main(["shortlist", str(trained.folder), str(table), "--out", str(shortlists[1]), *columns]) == 0
    model = clearhead.load(trained.folder)
    first, second = (model.load_shortlist(path) for path in shortlists)
    for name in ("offsets_V1", "lists_L", "frequent_F"):
        assert getattr(first, name).tolist() == getattr(second, name).tolist()


def test_line_files_have_no_columns(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("word\n" * 20, encoding="utf-8")
    files = [str(tmp_path / name) for name in ("a.en", "a.de")]
    assert main(["train", *files, "--out", str(tmp_path / "m"), "--columns", "source=1,target=2", "--steps", "1"]) == 2
    assert "a.de are two line files, which have no columns" in capsys.readouterr().err
