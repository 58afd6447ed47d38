"""What a run leaves in its folder: metrics.jsonl, checkpoints to average, and the bundle of the best weights."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from clearhead import bundle
from clearhead.bundle import WeightsKind
from clearhead.config import Config
from clearhead.errors import BundleError, TrainingError
from clearhead.files import replacing
from clearhead.model.weights import Weights
from clearhead.tasks.task import Validation

METRICS = "metrics.jsonl"
CHECKPOINTS = "training"


def check(folder: Path, overwrite: bool) -> None:
    """Says why a folder cannot take a new run, before any work is done."""
    if folder.exists() and not folder.is_dir():
        raise BundleError(f"{folder} is a file; --out expects a folder")
    if folder.exists() and any(folder.iterdir()):
        if not overwrite:
            raise BundleError(f"{folder} {_found(folder)}; choose another --out, or add --overwrite to replace it")
        if not (bundle.exists(folder) or (folder / METRICS).exists()):
            raise BundleError(f"{folder} is not empty and holds no run of clearhead; choose another --out")


def claim(folder: Path) -> None:
    """Makes the folder ready; the model of an earlier run stays until the new run has one of its own."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / METRICS).write_bytes(b"")
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        (folder / CHECKPOINTS).mkdir(exist_ok=True)
    except OSError as error:
        raise TrainingError(f"cannot write to {folder}: {error.strerror}") from error


def _found(folder: Path) -> str:
    if bundle.exists(folder):
        state = bundle.read_manifest(folder).training.get("state", "finished")
        return "holds a finished run" if state == "finished" else f"holds a run that is {state}"
    if (folder / METRICS).exists():
        return "holds a run that was interrupted before its first validation"
    return "is not empty and holds no run of clearhead"


@dataclass
class RunFolder:
    """The folder of one run. Every file in it is whole at any moment."""

    folder: Path
    config: Config
    tokenizer: str
    data: dict[str, Any]
    training: dict[str, Any]

    def record(self, entry: dict[str, Any]) -> None:
        """Appends one line to metrics.jsonl."""
        with (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def checkpoint(self, step: int, weights: Weights) -> None:
        """Keeps these weights and lets the oldest beyond `training.average` go."""
        with replacing(self.folder / CHECKPOINTS / f"step-{step:08d}.safetensors") as aside:
            save_file(weights, aside)
        for path in self.checkpoints()[: -self.config.training.average]:
            path.unlink()

    def checkpoints(self) -> list[Path]:
        """The kept checkpoints, oldest first."""
        return sorted((self.folder / CHECKPOINTS).glob("step-*.safetensors"))

    def best(self, step: int, weights: Weights, validation: Validation) -> None:
        """Writes the bundle of the best weights so far, so that it can be used while training goes on."""
        self.save(weights, "best", {"state": "running", "best_step": step, "scores": validation.to_json()})

    def save(self, weights: Weights, kind: WeightsKind, summary: dict[str, Any]) -> None:
        """Writes the bundle."""
        self.training |= summary
        bundle.save(
            self.folder,
            weights=weights,
            config=self.config.model_dump(),
            tokenizer=self.tokenizer,
            weights_kind=kind,
            data=self.data,
            training=self.training,
        )

    def average(self) -> Weights:
        """The mean of the kept checkpoints (section 6.1)."""
        paths = self.checkpoints()
        total: Weights = {}
        for path in paths:
            for name, tensor in load_file(path).items():
                total[name] = total[name] + tensor.double() if name in total else tensor.double()
        return {name: (tensor / len(paths)).to(torch.float32) for name, tensor in total.items()}

    def close(self) -> None:
        """Removes what only a running training needs."""
        shutil.rmtree(self.folder / CHECKPOINTS, ignore_errors=True)
