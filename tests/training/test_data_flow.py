"""Data flow of a training step: the number of source files whose functions one update executes."""

import inspect
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import clearhead
from clearhead.config import merge
from clearhead.training.loop.callbacks import NullCallback, Progress
from clearhead.training.run import TrainRequest, train
from tests.training.runs import settings_of, write_data

SOURCE = Path(clearhead.__file__).parent
MOST_FILES = 20  # outside of model/ and kernels/


class StepProfile(NullCallback):
    """Callback that collects the files whose functions run between the reports of two updates."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.is_recording = False
        self.files: set[str] = set()

    def progress(self, progress: Progress) -> None:
        self.is_recording = progress.step == self.after

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # not a module or a class body
        if self.is_recording and event == "call" and is_function and Path(code.co_filename).is_relative_to(SOURCE):
            self.files.add(Path(code.co_filename).relative_to(SOURCE).as_posix())


def test_a_training_step_passes_through_few_files(tmp_path: Path) -> None:
    """An update between two validations and checkpoints, which come after updates 5 and 10."""
    settings = merge(settings_of("translate"), {"training": {"validate_every": 5, "save_every": 5}})
    request = TrainRequest(
        [write_data("translate", tmp_path)], tmp_path / "out", settings=settings, steps=10, threads=2
    )
    callback = StepProfile(after=6)
    before = sys.getprofile(), threading.getprofile()
    try:
        threading.setprofile(callback.profile)  # the replicas compute in threads
        sys.setprofile(callback.profile)
        train(request, callback)
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])
    packages = {name.split("/")[0] for name in callback.files}
    assert {"model", "kernels", "training", "tasks", "data"} <= packages
    assert "training/loop/trainer.py" in callback.files and "training/setup/prepare.py" not in callback.files
    outside = sorted(name for name in callback.files if not name.startswith(("model/", "kernels/")))
    assert len(outside) <= MOST_FILES, outside
