"""A refused export lists all unsupported settings and names formats that do export the model."""

import re
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli.main import main
from clearhead.interop.exporter import EXPORTERS
from tests.interop.test_export import BERT, make

LABELS = ("good", "bad", "mixed")
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "default classifier": ("classify", {"family": "encoder", "head": "classification"}),
    "default tagger": ("tag", {"family": "encoder", "head": "token_classification"}),
    "default masked language model": ("mlm", {"family": "encoder", "head": "masked_lm"}),
    "BERT, pre-norm": ("classify", {**BERT, "head": "classification", "norm_placement": "pre", "pooler": True}),
    "BERT": ("mlm", {**BERT, "head": "masked_lm"}),
    "BERT with relu": ("mlm", {**BERT, "head": "masked_lm", "activation": "relu"}),
    "classifier with a recurrent encoder": ("classify", {"family": "lstm", "head": "classification"}),
    "image classifier": ("image", {"family": "cnn", "head": "classification", "image_size": 12, "norm_groups": 2}),
    "patches": ("image", {"family": "vit", "head": "classification", "image_size": 12, "patch_size": 4}),
    "translator": ("translate", {}),
    "translator, group norm": ("translate", {"norm": "group", "norm_groups": 2, "gated": True}),
    "translator, wide keys": ("translate", {"key_dim": 4, "value_dim": 3, "positions": "relative"}),
    "translator, recurrent": ("translate", {"family": "gru"}),
    "translator, no residual connection": ("translate", {"residual": False, "norm_epsilon": 1e-4}),
    "language model": ("lm", {"family": "decoder"}),
    "language model, untied, rotary": ("lm", {"family": "decoder", "positions": "rotary", "tied_embeddings": "none"}),
}


def export(folder: Path, to: str) -> int:
    return main(["export", str(folder / "clearhead"), "--to", to, str(folder / to)])


def make_model(folder: Path, name: str) -> None:
    task, settings = MODELS[name]
    make(folder / "clearhead", task, labels=LABELS if task in ("classify", "tag", "image") else (), **settings)


def test_default_classifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_model(tmp_path, "default classifier")
    assert export(tmp_path, "huggingface") == 2
    assert capsys.readouterr().err == (
        "clearhead: Hugging Face BERT cannot express model.norm_placement=pre (expected post), "
        "model.embedding_norm=False (expected True), model.positions=sinusoidal (expected learned), "
        "model.scale_embeddings=True (expected False), model.pooling=mean (expected first), "
        "model.pooler=False (expected True); export --to onnx works for this model\n"
    )
    assert export(tmp_path, "ctranslate2") == 2
    assert capsys.readouterr().err == (
        "clearhead: CTranslate2 cannot express model.family=encoder (expected transformer or decoder), "
        "model.head=classification (expected generation); export --to onnx works for this model\n"
    )


def check(folder: Path, name: str, formats: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each format either writes a folder, or refuses and advises exactly the formats that write one."""
    make_model(folder, name)
    results = {to: export(folder, to) for to in EXPORTERS if to in formats}
    capsys.readouterr()
    for to, code in results.items():
        assert (folder / to).exists() == (code == 0)
        if code == 0:
            continue
        assert (code, export(folder, to)) == (2, 2)
        message = capsys.readouterr().err
        advised = set(re.findall(r"export --to (\w+)", message)) & formats
        assert advised == {other for other, other_code in results.items() if other_code == 0}
        assert bool(re.search(r"export --to", message)) != ("no export format can express this model" in message)


@pytest.mark.parametrize("name", MODELS)
def test_advice_between_huggingface_and_ctranslate2(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check(tmp_path, name, {"huggingface", "ctranslate2"}, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_advice_between_all_formats(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(tmp_path, name, {*EXPORTERS}, capsys)


def test_refusal_lists_every_setting_that_must_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "clearhead", "classify", labels=LABELS, family="encoder", head="classification")
    assert export(tmp_path, "huggingface") == 2
    needed = dict(re.findall(r"model\.(\w+)=\S+ \(expected (\w+)\)", capsys.readouterr().err))
    settings: dict[str, Any] = {
        name: {"True": True, "False": False}.get(value, value) for name, value in needed.items()
    }
    make(tmp_path / "changed", "classify", labels=LABELS, **{"family": "encoder", "head": "classification", **settings})
    assert main(["export", str(tmp_path / "changed"), "--to", "huggingface", str(tmp_path / "out")]) == 0
