"""Fine-tuning: loaded and newly initialized tensors, messages about them, and refused combinations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as PillowImage

from clearhead.bundle import load as load_bundle
from clearhead.cli.main import main
from clearhead.model.parameters import named_weights
from clearhead.training.loop.callbacks import NullCallback
from clearhead.training.run import PreparedRun, TrainRequest, prepare
from tests.tasks.all_tasks import Models, write_files
from tests.tasks.artificial_text import write_lines


class RecordingCallback(NullCallback):
    """Records messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def write_files_in(folder: Path, task: str) -> Path:
    folder.mkdir(parents=True)
    return write_files(folder, task)


def start(folder: Path, task: str, model: Path, data: Path, **settings: Any) -> tuple[PreparedRun, str]:
    """Return the prepared run, and the message about loaded tensors."""
    listener = RecordingCallback()
    request = TrainRequest([data], folder / "out", settings=settings, task=task, start=model, threads=1)
    prepared = prepare(request, listener)
    (message,) = [text for text in listener.messages if text.startswith("loaded ")]
    return prepared, message


def loaded_names(prepared: PreparedRun, model: Path) -> set[str]:
    """Return the names of the weights that equal those of the model."""
    before = load_bundle(model).tensors()
    return {name for name, weight in named_weights(prepared.model).items()
            if name in before and torch.equal(weight, before[name])}  # fmt: skip


def write_images(folder: Path, labels: int, size: int = 4) -> Path:
    for number in range(24):
        path = folder / f"label{number % labels}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        PillowImage.fromarray(np.full((size, size), 9 * number, dtype=np.uint8)).save(path)
    return folder


def test_the_same_task_loads_all_weights(models: Models, tmp_path: Path) -> None:
    for task in ("image", "classify", "mlm", "lm", "translate"):
        prepared, message = start(tmp_path, task, models[task], write_files_in(tmp_path / task, task))
        names = set(named_weights(prepared.model))
        assert loaded_names(prepared, models[task]) == names
        assert message.startswith(f"loaded {len(list(prepared.model.parameters()))} tensors from {models[task]}")
        assert message.endswith("; newly initialized: none")


@pytest.mark.parametrize("labels", [3, 5])
def test_images_with_other_labels_get_a_new_head(labels: int, models: Models, tmp_path: Path) -> None:
    """Three labels are as many as before, but they are other labels."""
    prepared, message = start(tmp_path, "image", models["image"], write_images(tmp_path / "p", labels))
    assert prepared.config.labels == tuple(f"label{number}" for number in range(labels))
    names = set(named_weights(prepared.model))
    assert names - loaded_names(prepared, models["image"]) == {"output.weight", "output.bias"}
    assert message.endswith("; newly initialized: output.weight, output.bias")


def test_texts_with_more_labels_get_a_new_head(models: Models, tmp_path: Path) -> None:
    data = write_lines(tmp_path / "t.tsv", [f"The old dog {n} eats\t{n % 4}" for n in range(40)])
    prepared, message = start(tmp_path, "classify", models["classify"], data)
    assert named_weights(prepared.model)["output.weight"].shape[0] == 4
    assert message.endswith("; newly initialized: output.weight, output.bias")


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_unused_tensors_are_reported(task: str, models: Models, tmp_path: Path) -> None:
    prepared, message = start(tmp_path, task, models["mlm"], write_files(tmp_path, task))
    readers = {name for name in named_weights(prepared.model) if name.startswith("backbone.")}
    assert loaded_names(prepared, models["mlm"]) == readers
    left = "norm.bias, norm.weight, transform.bias, transform.weight"
    assert message.endswith(f"; newly initialized: output.weight, output.bias; not loaded: {left}")
    tokenizer = load_bundle(models["mlm"]).tokenizer
    assert prepared.tokenizer and prepared.tokenizer.to_json() == tokenizer


MISUSES = [
    ("image", "mlm", [], "trained for the task mlm and cannot start --task image: one reads text, the other images"),
    ("tag", "image", [], "trained for the task image and cannot start --task tag: one reads text, the other images"),
    ("classify", "translate", [], "cannot start --task classify: model.family=transformer has no head classification"),
    ("translate", "mlm", [], "cannot start --task translate: model.family=encoder has no head generation"),
    ("translate", "lm", [], "cannot start --task translate: only one of them continues a prompt; leave out --from"),
    ("lm", "translate", [], "cannot start --task lm: only one of them continues a prompt; leave out --from"),
    ("mlm", "classify", [], "the task mlm needs <mask> among tokenizer.special_tokens, found none"),
    ("denoise", "translate", [], "denoising needs a tokenizer with two or more sentinels"),
    ("classify", "mlm", ["--set", "model.model_dim=24"], "here; leave out the preset and the model settings"),
    ("classify", "mlm", ["--set", "model.num_encoder_layers=2"], ""),
    ("classify", "mlm", ["--preset", "small"], "leave out the preset and the model settings, or leave out"),
    ("tag", "mlm", ["--set", "tokenizer.kind=char"], "tokenizer.kind=char does not fit"),
    ("tag", "mlm", ["--set", "tokenizer.lowercase=true"], "trained with False; leave out the tokenizer settings"),
    ("image", "image", ["--set", "model.patch_size=4"], "the shape does not fit"),
    ("image", "image", ["--set", "model.family=mlp"], "model.family=mlp does not fit"),
    ("image", "nowhere", [], "there is no folder"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "model", "more", "message"), MISUSES, ids=lambda value: str(value)[:40])
def test_misuse_is_refused_in_a_sentence(
    task: str, model: str, more: list[str], message: str, models: Models, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = tmp_path / model if model == "nowhere" else models[model]
    options = ["--task", task, "--from", str(folder), "--out", str(tmp_path / "out"), "--steps", "1", *more]
    code = main(["train", str(write_files(tmp_path, task)), *options])
    if not message:  # more layers than before: the lower ones are loaded, the new ones are reported
        assert code == 0 and "newly initialized: backbone.encoder.layers.1." in capsys.readouterr().err
        return
    error = capsys.readouterr().err.splitlines()[-1]
    assert code == 2 and error.startswith("clearhead: ") and message in error
    assert not (tmp_path / "out").exists()


def test_images_of_another_size_are_refused(models: Models, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_images(tmp_path / "p", 3, size=6)
    options = ["--task", "image", "--from", str(models["image"]), "--out", str(tmp_path / "out"), "--steps", "1"]
    assert main(["train", str(data), *options]) == 2
    assert "(images of 4x4 there, of 6x6 here)" in capsys.readouterr().err.splitlines()[-1]
