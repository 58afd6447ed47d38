"""The Python API: `load`, `train`, `evaluate` and the `Model` that they return.

Imports every package except `serving`, `study` and `cli`; imports `training` only inside `train`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead import bundle
from clearhead import config as configs
from clearhead.api.base import StrPath, paths_of
from clearhead.api.encoding import EncodingMethods
from clearhead.api.generation import GenerationMethods
from clearhead.api.inspection import InspectionMethods
from clearhead.api.translation import TranslationMethods
from clearhead.config import DecodingConfig
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.engine import check_engine
from clearhead.engines.model_weights import ModelWeights
from clearhead.errors import BundleError
from clearhead.tasks.generated_text import Translation
from clearhead.tasks.task import EvaluationReport as AnyReport

if TYPE_CHECKING:
    from clearhead.training.loop.callbacks import Callback

__all__ = ["Model", "Translation", "evaluate", "load", "train"]


@dataclass(frozen=True)
class Model(TranslationMethods, GenerationMethods, EncodingMethods, InspectionMethods):
    """A loaded model; a method that the model was not trained for raises TaskError."""

    def evaluate_files(
        self,
        paths: Sequence[StrPath],
        settings: DecodingConfig | None = None,
        log: Callable[[str], object] = lambda _: None,
    ) -> AnyReport:
        """Return scores on test files in the format of the training files; `log` receives notes on skipped records."""
        self.require_tag()
        return self.task.evaluate(self, paths_of(paths), settings or self.config.decoding, log)


def load(folder: StrPath, tag: str = "", *, engine: str | None = None, compute_type: str = "float32") -> Model:
    """Return the model in a folder, after verifying the checksum of every file.

    `tag` is placed before every source, for models trained with tags. `engine` is native or torch; by default native
    for every model that it supports. `compute_type` is float32 or int8. torch is imported only for the torch engine,
    traces and ablations.
    """
    path = Path(folder)
    loaded = bundle.load(path)
    config = configs.parse(loaded.config)
    tokenizer = None if loaded.tokenizer.strip() == bundle.NO_TOKENIZER else Tokenizer.from_json(loaded.tokenizer)

    def reload() -> bundle.Bundle:
        """Load the bundle again, for an engine that needs the arrays after they were released."""
        reloaded = bundle.load(path)
        if reloaded.manifest.fingerprint != fingerprint:
            raise BundleError(f"{path} was replaced by another model since it was loaded; load it again")
        return reloaded

    fingerprint = loaded.manifest.fingerprint
    weights = ModelWeights(config.model, loaded, reload)
    if engine or compute_type != "float32":
        check_engine(engine or "native", compute_type)
    model = Model(path, config, tokenizer, weights, loaded.manifest, engine or "", compute_type)  # type: ignore[arg-type]
    return model.with_tag(tag) if tag else model


def train(
    files: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    task: str = "",
    valid: StrPath | Sequence[StrPath] = (),
    start: StrPath | None = None,
    old_valid: StrPath | Sequence[StrPath] = (),
    replay: StrPath | Sequence[StrPath] = (),
    replay_share: float | None = None,
    preset: str = "",
    minutes: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    settings: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    resume: bool = False,
    threads: int = 0,
    device: str = "auto",
    callback: "Callback | None" = None,
) -> Model:
    """Train a model and return it.

    `files` are the training files of the task; for translation, one table or two text files with one sentence per line.
    `task` defaults to that of the settings, then to translate. `settings` are nested as in a recipe, such as
    {"model": {"dropout": 0.2}}. `callback` receives progress, validations and messages.

    `start` is a pretrained model to fine-tune. `old_valid` are its validation files, scored before and after the
    training (default: the records that its run saved). `replay` are files of its training data; `replay_share`
    (default: 0.2) of the predictions of each batch come from them.

    With `resume` the run in `out` continues at its last checkpoint and ends with the same weights as an uninterrupted
    run; without a checkpoint it starts from the beginning.
    """
    from clearhead.training.loop.callbacks import NullCallback
    from clearhead.training.run import TrainRequest
    from clearhead.training.run import train as run_training

    request = TrainRequest(
        files=paths_of(files),
        out=Path(out),
        valid=paths_of(valid),
        preset=preset,
        settings=settings,
        overwrite=overwrite,
        threads=threads,
        task=task,
        start=Path(start) if start else None,
        old_valid=paths_of(old_valid),
        replay=paths_of(replay),
        replay_share=replay_share,
        minutes=minutes,
        epochs=epochs,
        steps=steps,
        resume=resume,
        device=device,
    )
    run_training(request, callback or NullCallback())
    return load(out)


def evaluate(folder: StrPath, files: StrPath | Sequence[StrPath]) -> AnyReport:
    """Return the scores of a model on test files in the format of its training files."""
    return load(folder).evaluate_files(paths_of(files))
