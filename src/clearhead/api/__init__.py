"""What `clearhead.load` and `clearhead.train` give: one object with the verbs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead import bundle
from clearhead import config as configs
from clearhead.api.loaded import StrPath, paths_of
from clearhead.api.looking import Looking
from clearhead.api.reading import Reading
from clearhead.api.translating import Translating
from clearhead.api.writing import Writing
from clearhead.config import DecodingConfig
from clearhead.data.tokenizer import Tokenizer
from clearhead.model.families import build_model
from clearhead.model.weights import restore
from clearhead.tasks.purposes import purpose
from clearhead.tasks.task import Report as AnyReport
from clearhead.tasks.translation_result import Translation
from clearhead.training.events import Silent, Watcher
from clearhead.training.run import Request as TrainingRequest
from clearhead.training.run import train as run_training

__all__ = ["Model", "Translation", "evaluate", "load", "train"]


@dataclass(frozen=True)
class Model(Translating, Writing, Reading, Looking):
    """A loaded bundle with all verbs; one that it was not trained for is refused."""

    def evaluate_files(
        self,
        paths: Sequence[StrPath],
        settings: DecodingConfig | None = None,
        log: Callable[[str], object] = lambda _: None,
    ) -> AnyReport:
        """Return scores on test files of the kind that the model was trained on; `log` receives what was skipped."""
        self.need_tag()
        return purpose(self.config.task).evaluate(self, paths_of(paths), settings or self.config.decoding, log)


def load(folder: StrPath, tag: str = "") -> Model:
    """The model in a bundle; every file is checked, no connection is opened. `tag` stands before every source."""
    found = bundle.load(Path(folder))
    config = configs.parse(found.config)
    network = build_model(config.model)
    restore(network, found.tensors())
    network.eval()
    tokenizer = None if found.tokenizer.strip() == bundle.NO_TOKENIZER else Tokenizer.from_json(found.tokenizer)
    model = Model(Path(folder), config, tokenizer, network, found.manifest)  # type: ignore[arg-type]
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
    watcher: Watcher | None = None,
) -> Model:
    """Trains a model and loads the result.

    `files` is one TSV or JSONL file or two line files, or what the task reads; `task` is translate if neither it nor
    the settings say otherwise; `start` is a model to start from; `settings` are nested as in a recipe, such as
    {"model": {"dropout": 0.2}}. `old_valid` are validation files of the model in `start`, scored before and after the
    training (by default the records that its run kept); `replay` is earlier training data, `replay_share` (0.2) of the
    predictions of each batch. With `resume` the run in `out` goes on where its last checkpoint was saved, to the
    same weights as if it had never stopped; without a checkpoint it starts from the beginning.
    """
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
    run_training(request, watcher or Silent())
    return load(out)


def evaluate(folder: StrPath, files: StrPath | Sequence[StrPath]) -> AnyReport:
    """Scores of a bundle on test files of the kind that it was trained on."""
    return load(folder).evaluate_files(paths_of(files))
