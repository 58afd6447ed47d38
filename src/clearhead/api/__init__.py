"""What `clearhead.load` and `clearhead.train` give: one object with the verbs."""

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
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import EvaluationReport as AnyReport
from clearhead.tasks.translation.result import Translation

if TYPE_CHECKING:
    from clearhead.training.loop.callbacks import Callback

__all__ = ["Model", "Translation", "evaluate", "load", "train"]


@dataclass(frozen=True)
class Model(TranslationMethods, GenerationMethods, EncodingMethods, InspectionMethods):
    """A loaded bundle with all verbs; one that it was not trained for is refused."""

    def evaluate_files(
        self,
        paths: Sequence[StrPath],
        settings: DecodingConfig | None = None,
        log: Callable[[str], object] = lambda _: None,
    ) -> AnyReport:
        """Return scores on test files of the kind that the model was trained on; `log` receives what was skipped."""
        self.need_tag()
        return get_task(self.config.task).evaluate(self, paths_of(paths), settings or self.config.decoding, log)


def load(folder: StrPath, tag: str = "", *, engine: str | None = None, compute_type: str = "float32") -> Model:
    """Return the model in a bundle; every file is checked, no connection is opened. `tag` precedes every source.

    `engine` is native or torch; by default native for every model that it supports. `compute_type` is
    float32 or int8. torch is imported only where it is needed: for its own engine, traces and ablations.
    """
    path = Path(folder)
    found = bundle.load(path)
    config = configs.parse(found.config)
    tokenizer = None if found.tokenizer.strip() == bundle.NO_TOKENIZER else Tokenizer.from_json(found.tokenizer)

    def read_again() -> bundle.Bundle:
        again = bundle.load(path)
        if again.manifest.fingerprint != found_fingerprint:
            raise BundleError(f"{path} was replaced by another model since it was loaded; load it again")
        return again

    found_fingerprint = found.manifest.fingerprint
    weights = ModelWeights(config.model, found, read_again)
    if engine or compute_type != "float32":
        check_engine(engine or "native", compute_type)
    model = Model(path, config, tokenizer, weights, found.manifest, engine or "", compute_type)  # type: ignore[arg-type]
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
    watcher: "Callback | None" = None,
) -> Model:
    """Trains a model and loads the result.

    `files` is one TSV or JSONL file or two line files, or what the task reads; `task` is translate if neither it nor
    the settings say otherwise; `start` is a model to start from; `settings` are nested as in a recipe, such as
    {"model": {"dropout": 0.2}}. `old_valid` are validation files of the model in `start`, scored before and after the
    training (by default the records that its run kept); `replay` is earlier training data, `replay_share` (0.2) of the
    predictions of each batch. With `resume` the run in `out` goes on where its last checkpoint was saved, to the
    same weights as if it had never stopped; without a checkpoint it starts from the beginning.
    """
    from clearhead.training.loop.callbacks import NullCallback
    from clearhead.training.run import TrainRequest as TrainingRequest
    from clearhead.training.run import train as run_training

    length = {"minutes": minutes, "epochs": epochs, "steps": steps}
    given = {name: value for name, value in length.items() if value is not None}
    settings = configs.merge(settings or {}, {"training": given} if given else {})
    if replay_share is not None:
        settings = configs.merge(settings, {"data": {"replay_share": replay_share}})
    request = TrainingRequest(
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
        resume=resume,
        device=device,
    )
    run_training(request, watcher or NullCallback())
    return load(out)


def evaluate(folder: StrPath, files: StrPath | Sequence[StrPath]) -> AnyReport:
    """Scores of a bundle on test files of the kind that it was trained on."""
    return load(folder).evaluate_files(paths_of(files))
