"""Encoders as ONNX graphs: the outputs of the network for any batch size and length, and an example that runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import clearhead
from clearhead.api import Model
from clearhead.cli.main import main
from clearhead.config import parse
from clearhead.interop.onnx.encoders import write_encoder
from clearhead.model.registry import build_model
from tests.interop.test_export import BERT, make
from tests.interop.test_onnx import read
from tests.training.runs import write_data

VOCAB, LONGEST, PAD = 37, 61, 0
SHAPES = ((1, 1), (1, 7), (5, 11), (2, LONGEST))
HEADS = {"classification": "classify", "token_classification": "tag", "masked_lm": "mlm"}
TEXT: dict[str, dict[str, Any]] = {
    "default classifier": {"head": "classification"},
    "default tagger": {"head": "token_classification"},
    "default masked language model": {"head": "masked_lm"},
    "bert": {**BERT, "head": "classification", "pooler": True},
    "learned positions, last state": {"head": "classification", "positions": "learned", "pooling": "last"},
    "rotary, wide keys": {
        "head": "token_classification",
        "positions": "rotary",
        "key_dim": 4,
        "value_dim": 3,
        "norm_placement": "post",
    },
    "relative, rms, gated": {"head": "masked_lm", "positions": "relative", "norm": "rms", "bias": False, "gated": True},
    "no positions, group norm": {"head": "classification", "positions": "none", "norm": "group", "norm_groups": 2},
    "sample norm": {
        "head": "classification",
        "norm": "sample",
        "sinusoidal_layout": "concatenated",
        "scale_attention": False,
    },
    "batch norm": {"head": "token_classification", "norm": "batch", "activation": "silu", "scale_embeddings": False},
    "no norm, no residual connection": {"head": "classification", "norm": "none", "residual": False},
    "rnn": {"family": "rnn", "head": "classification"},
    "gru in both directions": {"family": "gru", "head": "token_classification", "bidirectional": True},
    "lstm in both directions, last state": {
        "family": "lstm",
        "head": "classification",
        "bidirectional": True,
        "pooling": "last",
    },
    "gru without biases": {"family": "gru", "head": "classification", "bias": False, "pooling": "last"},
    "lstm": {"family": "lstm", "head": "token_classification", "num_encoder_layers": 1},
}
IMAGES: dict[str, dict[str, Any]] = {
    "patches": {"family": "vit", "positions": "learned", "pooling": "first"},
    "patches, relative": {"family": "vit", "positions": "relative"},
    "convolutional": {"family": "cnn", "norm_groups": 11},
    "mlp": {"family": "mlp"},
}
QUICK = {"default classifier"}


def slow_unless(names: Any, quick: set[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


def exported(folder: Path, task: str, **settings: Any) -> tuple[Any, Any]:
    """A network with random weights in every parameter and running statistic, and the session over its graph."""
    torch.manual_seed(3)
    sizes = {"num_encoder_layers": 2, "model_dim": 22, "feed_forward_dim": 31, "num_heads": 11}
    config = parse({"task": task, "labels": ["a", "b", "c"], "model": {**sizes, "num_labels": 3, **settings}})
    network = build_model(config.model).eval()
    with torch.no_grad():
        for name, tensor in (*network.named_parameters(), *network.named_buffers()):
            if tensor.is_floating_point() and "table_L" not in name:
                tensor += 0.2 * torch.randn_like(tensor).abs()
    write_encoder(config, network, None, folder)
    return network, read(folder / "model.onnx")


@pytest.mark.parametrize("name", slow_unless(TEXT, QUICK))
@torch.inference_mode()
def test_text_encoder(tmp_path: Path, name: str) -> None:
    settings = {"max_positions": LONGEST, "vocab_size": VOCAB, "family": "encoder", **TEXT[name]}
    settings["max_positions"] = LONGEST
    with torch.inference_mode(False):
        network, session = exported(tmp_path, HEADS[settings["head"]], **settings)
    for rows, length in SHAPES:
        ids_BS = torch.randint(4, VOCAB, (rows, length))
        for row in range(2, rows):
            ids_BS[row, row * length // rows :] = PAD
        (found,) = session.run(["logits"], {"ids": ids_BS.numpy()})
        expected = network.logits(network(ids_BS))
        is_real = ids_BS != PAD if expected.dim() == 3 else slice(None)
        torch.testing.assert_close(torch.from_numpy(found)[is_real], expected[is_real], atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("channels", [1, 3])
def test_image_encoder(tmp_path: Path, name: str, channels: int) -> None:
    settings = {"head": "classification", "image_size": 12, "image_channels": channels, **IMAGES[name]}
    network, session = exported(tmp_path, "image", **settings)
    for rows in (1, 5):
        pixels_BCYX = torch.randn(rows, channels, 12, 12)
        (found,) = session.run(["logits"], {"pixels": pixels_BCYX.numpy()})
        with torch.inference_mode():
            expected = network.logits(network(pixels_BCYX))
        torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-4, rtol=1e-4)


def example(folder: Path, **replaced: str) -> list[str]:
    """Run the Python example of the README in the folder, with other texts; return the lines that it prints."""
    code = (folder / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    for old, new in replaced.items():
        start = code.index(f"{old} = ")
        code = code[:start] + f"{old} = {new}" + code[code.index("\n", start) :]
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def train(folder: Path, task: str, *more: str) -> Model:
    """Train with the default settings for a few updates, and export to ONNX, by the command line."""
    data = write_data(task, folder / "data")
    arguments = [
        "train",
        str(data),
        "--task",
        task,
        "--out",
        str(folder / "clearhead"),
        "--steps",
        "3",
        "--threads",
        "1",
    ]
    assert main([*arguments, *more]) == 0
    assert main(["export", str(folder / "clearhead"), "--to", "onnx", str(folder / "onnx")]) == 0
    return clearhead.load(folder / "clearhead")


def test_default_classifier(tmp_path: Path) -> None:
    model = train(tmp_path, "classify")
    texts = ["The bird eats.", "Look, a knife cuts the bread of the old man.", "naïve 日本"]
    assert example(tmp_path / "onnx", texts=str(texts)) == [f"{model.classify(text).label}\t{text}" for text in texts]
    config = json.loads((tmp_path / "onnx" / "config.json").read_text())
    assert (config["task"], tuple(config["labels"])) == ("classify", model.config.labels)
    assert config["pad_id"] == model.tokenizer.pad_id
    source = str(Path(clearhead.__file__).parent).encode()
    assert source not in (tmp_path / "onnx" / "model.onnx").read_bytes(), "paths of this machine"


@pytest.mark.slow
def test_default_tagger(tmp_path: Path) -> None:
    model = train(tmp_path, "tag")
    text = "The bird eats the bread"
    pairs = [line.split("\t") for line in example(tmp_path / "onnx", texts=str([text]))]
    tokens = [token for token, _ in pairs]
    ids = [model.tokenizer.bos_id, *model.tokenizer.encode(text).ids, model.tokenizer.eos_id]
    with torch.inference_mode():
        expected = model.network.logits(model.network(torch.tensor([ids])))[0].argmax(-1).tolist()
    assert len(tokens) == len(ids)
    assert [tag for _, tag in pairs] == [model.config.labels[index] for index in expected]


@pytest.mark.slow
def test_default_masked_language_model(tmp_path: Path) -> None:
    model = train(tmp_path, "mlm")
    texts = ["The <mask> eats.", "Look, <mask> knife cuts <mask>."]
    found = example(tmp_path / "onnx", texts=str(texts))
    expected = [mask[0].token.replace("▁", " ") for text in texts for mask in model.fill(text, top=1)]
    assert found == expected


@pytest.mark.slow
def test_default_image_classifier(tmp_path: Path) -> None:
    model = train(tmp_path, "image")
    for number, shade in enumerate((40, 100, 160)):
        Image.frombytes("L", (8, 8), bytes((shade + 3 * pixel) % 256 for pixel in range(64))).save(
            tmp_path / "onnx" / "image.png"
        )
        expected = model.classify_images(tmp_path / "onnx" / "image.png")[0].label
        assert example(tmp_path / "onnx") == [expected], number


@pytest.mark.slow
def test_sentence_embeddings(tmp_path: Path) -> None:
    make(tmp_path / "clearhead", "embed", **BERT, head="embedding")
    assert main(["export", str(tmp_path / "clearhead"), "--to", "onnx", str(tmp_path / "onnx")]) == 0
    model = clearhead.load(tmp_path / "clearhead")
    texts = ["The dog runs.", "The cat sleeps 3 times, naïve."]
    session = read(tmp_path / "onnx" / "model.onnx")
    rows = [[model.tokenizer.bos_id, *model.tokenizer.encode(text).ids, model.tokenizer.eos_id] for text in texts]
    longest = max(map(len, rows))
    ids = np.array([row + [model.tokenizer.pad_id] * (longest - len(row)) for row in rows])
    (found,) = session.run(["sentence_embedding"], {"ids": ids})
    np.testing.assert_allclose(found, model.embed_many(texts), atol=1e-5, rtol=1e-5)
    assert len(example(tmp_path / "onnx")) > 1


@pytest.mark.slow
def test_weights_of_a_large_model_are_a_second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.interop.onnx.generators._MAX_SINGLE_FILE", 0)
    make(tmp_path / "clearhead", "classify", labels=("a", "b"), family="encoder", head="classification")
    assert main(["export", str(tmp_path / "clearhead"), "--to", "onnx", str(tmp_path / "onnx")]) == 0
    assert (tmp_path / "onnx" / "model.onnx.data").stat().st_size > (tmp_path / "onnx" / "model.onnx").stat().st_size
    (tmp_path / "onnx").rename(tmp_path / "moved")
    model = clearhead.load(tmp_path / "clearhead")
    texts = ["The dog runs.", "A cat."]
    assert example(tmp_path / "moved", texts=str(texts)) == [f"{model.classify(text).label}\t{text}" for text in texts]
