"""A run that was stopped and goes on ends with the same bits as one that was not; and what a resume refuses."""

import json
from pathlib import Path

import pytest

from tests.training.runs import MORE, Watching, model_of, run, write_data


@pytest.mark.parametrize("task", MORE)
def test_every_task_goes_on_as_if_it_had_not_stopped(task: str, tmp_path: Path) -> None:
    """Stopped twice: between checkpoints and validations, and at a step where a validation was due."""
    data = write_data(task, tmp_path)
    run(task, data, tmp_path / "whole")
    for stop_at in (5, 8):
        watcher = Watching(stop_at)
        assert run(task, data, tmp_path / "parts", watcher, resume=True).outcome.reason == "interrupted"
        assert watcher.steps[-1] == stop_at
    watcher = Watching()
    result = run(task, data, tmp_path / "parts", watcher, resume=True)
    assert (result.outcome.reason, result.outcome.step) == ("finished", 13)
    assert watcher.steps == [9, 10, 11, 12, 13]
    assert model_of(tmp_path / "parts") == model_of(tmp_path / "whole")
    assert entries(tmp_path / "parts") == entries(tmp_path / "whole")


def entries(folder: Path) -> list[dict[str, object]]:
    """What a run noted, without the time it took."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    timed = ("seconds", "tokens_per_second")
    return [{key: value for key, value in json.loads(line).items() if key not in timed} for line in lines]
