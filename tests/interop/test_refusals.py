"""Unsupported settings are refused by name, and damaged or crafted files before anything is allocated."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from clearhead.cli.main import main
from tests.interop.folders import BERT_TOKENS, bert_tokenizer, hf, save

SIZES = {
    "vocab_size": len(BERT_TOKENS), "hidden_size": 22, "num_hidden_layers": 1, "num_attention_heads": 11,
    "intermediate_size": 17, "max_position_embeddings": 19,
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small BERT; tests change copies of its files."""
    folder = tmp_path_factory.mktemp("bert")
    bert_tokenizer(save(hf.BertForMaskedLM(hf.BertConfig(**SIZES)), folder))
    return folder


def copied(saved: Path, folder: Path, **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for file in saved.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((saved / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line of the error message."""
    out = folder.parent / "out"
    assert main(["import", str(folder), "--out", str(out)]) == 2
    assert not out.exists()
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    return message


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (
            {"architectures": ["BertForSequenceClassification"], "hidden_act": "quick_gelu"},
            "activation quick_gelu is not",
        ),
        ({"hidden_act": "relu"}, "hidden_act relu is not supported"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type relative_key is not supported"),
        ({"is_decoder": True}, "is_decoder True is not supported"),
        ({"architectures": ["BertForQuestionAnswering"]}, "architecture BertForQuestionAnswering is not supported"),
        ({"architectures": []}, "expected one name in architectures"),
        ({"model_type": "mamba"}, "model_type 'mamba' is not supported"),
        ({"num_hidden_layers": 2}, "missing bert.encoder.layer.1."),
        ({"num_hidden_layers": 10**12}, "parameters or more, but the file has"),
        ({"hidden_size": 10**6 * 11}, "parameters or more, but the file has"),
        ({"vocab_size": 10**12}, "parameters or more, but the file has"),
        ({"hidden_size": "wide"}, "expected a positive integer for hidden_size"),
        ({"num_attention_heads": 4}, "num_heads=4 does not divide"),
        ({"intermediate_size": 16}, "has shape (17, 22), but the settings imply (16, 22)"),
        ({"max_position_embeddings": 18}, "has shape (19, 22), but the settings imply (18, 22)"),
        ({"vocab_size": len(BERT_TOKENS) - 2}, "the tokenizer has"),
    ],
)
def test_settings(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, Any], named: str
) -> None:
    assert named in refused(copied(saved, tmp_path / "model", **settings), capsys)


def header(entries: dict[str, Any], size: int = 0) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        struct.pack("<Q", 2**60),
        struct.pack("<Q", 9) + b"not json!",
        header({"x": {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4 * 10**12]}}),
        header({"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 8]}}, 8),
        header({"x": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}, 16),
    ],
)
def test_crafted_headers(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    folder = copied(saved, tmp_path / "model")
    (folder / "model.safetensors").write_bytes(content)
    assert "is not a valid safetensors file" in refused(folder, capsys)


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Add tensors to the file, or remove them."""
    held = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        held.pop(name, None)
        if tensor is not None:
            held[name] = tensor
    save_file(held, folder / "model.safetensors")


def test_missing_and_unexpected_tensors_are_listed(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(saved, tmp_path / "model")
    change(folder, **{"cls.predictions.bias": None, "adapter.down": torch.ones(2)})
    message = refused(folder, capsys)
    assert "missing cls.predictions.bias; unexpected adapter.down" in message


def test_tied_weights_that_differ_are_refused(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied(saved, tmp_path / "model")
    change(folder, **{"cls.predictions.decoder.weight": torch.ones(len(BERT_TOKENS), 22)})
    assert "must be tied to bert.embeddings.word_embeddings.weight" in refused(folder, capsys)


def test_integer_weights_are_refused(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied(saved, tmp_path / "model")
    change(folder, **{"cls.predictions.bias": torch.ones(len(BERT_TOKENS), dtype=torch.int8)})
    assert "quantized weights cannot be imported" in refused(folder, capsys)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("config.json", "{", "cannot be read as JSON"),
        ("config.json", "[]", "expected a JSON object"),
        ("vocab.txt", None, "has no tokenizer"),
        ("model.safetensors", None, "expected model.safetensors"),
        ("vocab.txt", "a\nb\n", "the tokenizer has no cls_token"),
        ("tokenizer.json", "{}", "the tokenizer cannot be read"),
    ],
)
def test_files(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str | None, named: str
) -> None:
    folder = copied(saved, tmp_path / "model")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    assert named in refused(folder, capsys)


def test_paths(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "expected a local folder or file" in refused(tmp_path / "google" / "bert", capsys)
    (tmp_path / "empty").mkdir()
    assert "has no config.json" in refused(tmp_path / "empty", capsys)
    assert main(["import", str(saved), "--out", str(tmp_path / "twice")]) == 0
    assert main(["import", str(saved), "--out", str(tmp_path / "twice")]) == 2
    assert main(["import", str(saved), "--out", str(tmp_path / "twice"), "--overwrite"]) == 0
    capsys.readouterr()
    assert main(["export", str(tmp_path / "twice"), "--to", "keras", str(tmp_path / "x")]) == 2
    assert "'keras' is not one of" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "twice"), "--to", "huggingface", str(saved)]) == 2
    assert "already exists; choose another folder, or add --overwrite" in capsys.readouterr().err


def test_shards_are_read_through_their_index_and_halves_without_loss(saved: Path, tmp_path: Path) -> None:
    folder = copied(saved, tmp_path / "model")
    tensors = {name: tensor.half() for name, tensor in load_file(folder / "model.safetensors").items()}
    names = sorted(tensors)
    parts = {"model-1.safetensors": names[:5], "model-2.safetensors": names[5:]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    assert main(["import", str(folder), "--out", str(tmp_path / "clearhead")]) == 0
    assert main(["export", str(tmp_path / "clearhead"), "--to", "huggingface", str(tmp_path / "again")]) == 0
    for name, tensor in load_file(tmp_path / "again" / "model.safetensors").items():
        assert torch.equal(tensor, tensors[name].float()), name
