"""Engines from the command line and in Python, and models exported to CTranslate2."""

import json
from pathlib import Path
from typing import Any

import ctranslate2  # type: ignore[import-untyped]
import pytest

import clearhead
from clearhead import runtime
from clearhead.cli.main import main
from tests.tasks.all_tasks import Models
from tests.trained_model import Trained

needs_core = pytest.mark.skipif(not runtime.is_available(), reason=runtime.why_unavailable())


@pytest.fixture
def folder(trained: Trained) -> Path:
    return trained.folder


@pytest.fixture
def lines(trained: Trained) -> list[str]:
    return [line.split("\t")[0] for line in trained.test.read_text(encoding="utf-8").splitlines()][:12]


def translate(
    folder: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *more: str
) -> tuple[list[Any], str]:
    monkeypatch.setattr("clearhead.cli.stdin_batches.stdin_batches", lambda _: iter([lines]))
    assert main(["translate", str(folder), "--threads", "1", "--beam", "2", "--json", *more]) == 0
    out, err = capfd.readouterr()
    return [json.loads(line) for line in out.splitlines()], err


@needs_core
def test_the_engines_translate_alike(
    folder: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    by_torch, _ = translate(folder, lines, monkeypatch, capfd, "--engine", "torch")
    fast, err = translate(folder, lines, monkeypatch, capfd, "--engine", "native")
    assert err == ""
    same = [mine["text"] == other["text"] for mine, other in zip(by_torch, fast, strict=True)]
    assert sum(same) >= len(lines) - 1
    for mine, other in zip(by_torch, fast, strict=True):
        if mine["text"] == other["text"]:
            assert other["token_log_probs"] == pytest.approx(mine["token_log_probs"], abs=1e-3)
    rough, _ = translate(folder, lines, monkeypatch, capfd, "--engine", "native", "--compute-type", "int8")
    assert [one["source"] for one in rough] == lines
    assert rough != fast


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "{}", "--engine", "torch", "--compute-type", "int8"], "the torch engine computes in float32"),
        (["translate", "{}", "--engine", "tensorrt"], "'tensorrt' is not one of"),
        (["export", "{}", "{}", "--to", "ctranslate2"], "already exists; choose another folder, or add --overwrite"),
        (["export", "{}", "{}-new", "--to", "onnx", "--compute-type", "int8"], "--to onnx writes float32"),
    ],
)  # fmt: skip
def test_unsupported_requests_are_one_line(
    arguments: list[str], message: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([argument.format(folder) for argument in arguments]) == 2
    out, err = capfd.readouterr()
    assert out == "" and message in err and err.count("\n") == 1
    assert not Path(f"{folder}-new").exists()


def test_an_export_is_complete_and_replaced_only_with_overwrite(
    folder: Path, lines: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, model = tmp_path / "out", clearhead.load(folder)
    assert main(["export", str(folder), "--to", "ctranslate2", str(out)]) == 0
    size = (out / "model.bin").stat().st_size
    translator = ctranslate2.Translator(str(out), intra_threads=1)
    expected = model.translate_many(lines, settings=model.decoding(beam_size=1, max_length="20"))
    sources = [[*model.tokenizer.encode(line).tokens, "</s>"] for line in lines]
    found = translator.translate_batch(sources, beam_size=1, max_decoding_length=20, min_decoding_length=0)
    assert [tuple(one.hypotheses[0]) for one in found] == [one.tokens for one in expected]
    assert main(["export", str(folder), "--to", "ctranslate2", str(out)]) == 2
    assert main(["export", str(folder), "--to", "ctranslate2", str(out), "--overwrite", "--compute-type", "int8"]) == 0
    assert (out / "model.bin").stat().st_size < 0.7 * size  # the position table is not quantized
    assert (out / "tokenizer.json").read_text() == (folder / "tokenizer.json").read_text()


def test_a_model_with_ablated_heads_is_not_exported(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(clearhead.ClearheadError, match="forward hooks"):
        clearhead.load(folder).with_ablated(["cross.0"]).export(tmp_path / "out", "ctranslate2")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [pytest.param("native", marks=needs_core), "torch"])
def test_the_python_api_takes_an_engine_or_its_name(name: str, folder: Path, lines: list[str]) -> None:
    model = clearhead.load(folder)
    named = model.translate(lines[0], beam_size=2, engine=name)
    assert model.translate(lines[0], beam_size=2, engine=model.engine(name)) == named
    assert model.translate("", engine=name).text == ""


@needs_core
def test_engines_are_cached_and_unknown_names_refused(folder: Path) -> None:
    model = clearhead.load(folder)
    assert model.engine("native") is model.engine("native")
    assert model.engine("native") is not model.engine("native", token_log_probs=False)
    with pytest.raises(clearhead.ClearheadError, match="expected an engine of native, torch and"):
        model.translate("A dog", engine="ctranslate2")


@needs_core
def test_both_engines_continue_prompts(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """CTranslate2's Generator gives the same texts with the exported model."""
    folder, prompts = models["lm"], ["", "The", "Look at", "in"]
    monkeypatch.setattr("clearhead.cli.stdin_batches.stdin_batches", lambda _: iter([prompts]))
    found = {}
    for engine in ("torch", "native"):
        options = ["--lines", "--json", "--beam", "2", "--max-tokens", "7", "--engine", engine, "--threads", "1"]
        assert main(["generate", str(folder), *options]) == 0
        found[engine] = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    for mine, other in zip(found["torch"], found["native"], strict=True):
        assert (other["prompt"], other["text"], other["tokens"]) == (mine["prompt"], mine["text"], mine["tokens"])
        assert other["token_log_probs"] == pytest.approx(mine["token_log_probs"], abs=1e-4)
    assert main(["export", str(folder), "--to", "ctranslate2", str(tmp_path / "out")]) == 0
    model = clearhead.load(folder)
    generator = ctranslate2.Generator(str(tmp_path / "out"), intra_threads=1)
    specials = [[model.tokenizer.token(index)] for index in (0, 1, 2)]
    start = ["<s>", *model.tokenizer.encode("The").tokens]
    [result] = generator.generate_batch(
        [start], max_length=7, include_prompt_in_result=False, suppress_sequences=specials
    )
    assert tuple(result.sequences[0]) == model.generate("The", beam_size=1, max_tokens=7).tokens
