"""The whole path of engines: translate with each, convert once, export, and refuse by name."""

import json
import shutil
from pathlib import Path
from typing import Any

import ctranslate2  # type: ignore[import-untyped]
import pytest

import clearhead
from clearhead.cli.main import main
from tests.tasks.every import Models
from tests.whole import Trained


@pytest.fixture
def folder(trained: Trained, tmp_path: Path) -> Path:
    """A copy, because engines write into its cache."""
    shutil.copytree(trained.folder, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def lines(trained: Trained) -> list[str]:
    return [line.split("\t")[0] for line in trained.test.read_text(encoding="utf-8").splitlines()][:12]


def translate(
    folder: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *more: str
) -> tuple[list[Any], str]:
    monkeypatch.setattr("clearhead.cli.line_answers.stdin_batches", lambda _: iter([lines]))
    assert main(["translate", str(folder), "--threads", "1", "--beam", "2", "--json", *more]) == 0
    out, err = capfd.readouterr()
    return [json.loads(line) for line in out.splitlines()], err


def test_the_engines_translate_alike_and_the_model_is_converted_once(
    folder: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    by_torch, _ = translate(folder, lines, monkeypatch, capfd)
    fast, err = translate(folder, lines, monkeypatch, capfd, "--engine", "ctranslate2")
    [converted] = (folder / "cache").iterdir()
    made = (converted / "model.bin").stat().st_mtime_ns
    assert err == ""
    same = [mine["text"] == other["text"] for mine, other in zip(by_torch, fast, strict=True)]
    assert sum(same) >= len(lines) - 1
    for mine, other in zip(by_torch, fast, strict=True):
        if mine["text"] == other["text"]:
            assert other["token_log_probs"] == pytest.approx(mine["token_log_probs"], abs=1e-3)
    rough, _ = translate(folder, lines, monkeypatch, capfd, "--engine", "ctranslate2", "--compute-type", "int8")
    assert [one["source"] for one in rough] == lines
    assert rough != fast
    assert [path.name for path in (folder / "cache").iterdir()] == [converted.name]
    assert (converted / "model.bin").stat().st_mtime_ns == made


def test_the_papers_normalisation_is_said_to_be_ranked_again(
    folder: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    paper = ("--set", "decoding.length_penalty_form=gnmt", "--engine", "ctranslate2")
    _, err = translate(folder, lines, monkeypatch, capfd, *paper)
    assert "ranked by the paper's formula" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "{}", "--engine", "ctranslate2", "--set", "decoding.stopping_rule=cannot_improve"],
         "cannot honour decoding.stopping_rule=cannot_improve"),
        (["translate", "{}", "--engine", "ctranslate2", "--prefix", "Die"], "cannot honour decoding.prefix"),
        (["translate", "{}", "--engine", "ctranslate2", "--stream"], "--alternatives-at need --engine native or torch"),
        (["translate", "{}", "--engine", "torch", "--compute-type", "int8"], "the torch engine computes in float32"),
        (["translate", "{}", "--engine", "tensorrt"], "'tensorrt' is not one of"),
        (["export", "{}", "{}", "--to", "ctranslate2"], "exists already; choose another folder, or add --overwrite"),
        (["export", "{}", "{}-new", "--to", "onnx", "--compute-type", "int8"], "--to onnx writes float32"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line(
    arguments: list[str], message: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([argument.format(folder) for argument in arguments]) == 2
    out, err = capfd.readouterr()
    assert out == "" and message in err and err.count("\n") == 1
    assert not Path(f"{folder}-new").exists()


def test_an_exported_model_is_whole_and_replaced_only_when_told(
    folder: Path, lines: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, model = tmp_path / "out", clearhead.load(folder)
    assert main(["export", str(folder), "--to", "ctranslate2", str(out)]) == 0
    size = (out / "model.bin").stat().st_size
    translator = ctranslate2.Translator(str(out), intra_threads=1)
    expected = model.translate_many(lines, settings=model.decoding(beam_size=1, max_length="20"))
    sources = [[*model.tokenizer.encode(line).pieces, "</s>"] for line in lines]
    found = translator.translate_batch(sources, beam_size=1, max_decoding_length=20, min_decoding_length=0)
    assert [tuple(one.hypotheses[0]) for one in found] == [one.tokens for one in expected]
    assert main(["export", str(folder), "--to", "ctranslate2", str(out)]) == 2
    assert main(["export", str(folder), "--to", "ctranslate2", str(out), "--overwrite", "--compute-type", "int8"]) == 0
    assert (out / "model.bin").stat().st_size < 0.7 * size  # the table of places stays as it is
    assert (out / "tokenizer.json").read_text() == (folder / "tokenizer.json").read_text()


def test_the_python_api_takes_an_engine_by_name_or_as_it_is(folder: Path, lines: list[str]) -> None:
    model = clearhead.load(folder)
    named = model.translate(lines[0], beam_size=2, engine="ctranslate2")
    assert model.translate(lines[0], beam_size=2, engine=model.engine("ctranslate2")) == named
    assert model.engine("ctranslate2") is model.engine("ctranslate2")
    assert model.translate("", engine="ctranslate2").text == ""
    with pytest.raises(clearhead.ClearheadError, match="parts switched off"):
        model.with_heads_off(["cross.0"]).translate(lines[0], engine="ctranslate2")
    with pytest.raises(clearhead.ClearheadError, match="expected an engine of native, torch, ctranslate2"):
        model.translate(lines[0], engine="tensorrt")


def test_both_engines_write_on_from_prompts(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Converted once, refused by name, exported as CTranslate2's own Generator loads it."""
    folder, prompts = tmp_path / "model", ["", "The", "Look at", "in"]
    shutil.copytree(models["lm"], folder)
    monkeypatch.setattr("clearhead.cli.line_answers.stdin_batches", lambda _: iter([prompts]))
    found = {}
    for engine in ("torch", "ctranslate2"):
        options = ["--lines", "--json", "--beam", "2", "--max-tokens", "7", "--engine", engine, "--threads", "1"]
        assert main(["generate", str(folder), *options]) == 0
        found[engine] = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    for mine, other in zip(found["torch"], found["ctranslate2"], strict=True):
        assert (other["prompt"], other["text"], other["tokens"]) == (mine["prompt"], mine["text"], mine["tokens"])
        assert other["token_log_probs"] == pytest.approx(mine["token_log_probs"], abs=1e-4)
    assert len(list((folder / "cache").iterdir())) == 1
    for options, message in (
        (["--engine", "ctranslate2"], "cannot honour decoding.method"),
        (["The", "--beam", "2", "--engine", "ctranslate2"], "use --engine torch, whose context slides"),
        (["--beam", "1", "--engine", "ctranslate2", "--stop", "x"], "cannot honour decoding.sampling.stop"),
    ):
        assert main(["generate", str(folder), *options]) == 2
        out, err = capfd.readouterr()
        [refusal] = [line for line in err.splitlines() if "has not learned its task" not in line]
        assert out == "" and message in refusal
    assert main(["export", str(folder), "--to", "ctranslate2", str(tmp_path / "out")]) == 0
    model = clearhead.load(folder)
    generator = ctranslate2.Generator(str(tmp_path / "out"), intra_threads=1)
    specials = [[model.tokenizer.piece(index)] for index in (0, 1, 2)]
    start = ["<s>", *model.tokenizer.encode("The").pieces]
    [result] = generator.generate_batch(
        [start], max_length=7, include_prompt_in_result=False, suppress_sequences=specials
    )
    assert tuple(result.sequences[0]) == model.generate("The", beam_size=1, max_tokens=7).tokens
