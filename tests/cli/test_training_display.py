"""Display of work before a training: plain lines at intervals, or a bar that is removed at the first update."""

import math

import pytest

from clearhead.cli.training_display import LiveDisplay, PlainDisplay
from clearhead.training.loop.callbacks import Progress


def test_plain_lines_are_printed_at_intervals_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = PlainDisplay()
    for done in (1000, 2000, 3000):
        watcher.work("cutting pairs", done, 3000)
    assert capsys.readouterr().err == "cutting pairs: 1,000/3,000\ncutting pairs: 3,000/3,000\n"
    watcher.work("reading pairs", 5000, 0)  # unknown total
    assert capsys.readouterr().err == ""


def test_each_work_has_a_bar_until_the_training_begins() -> None:
    watcher = LiveDisplay()
    watcher.work("reading pairs", 5000, 0)
    watcher.work("cutting pairs", 1000, 3000)
    watcher.work("cutting pairs", 2000, 3000)
    shown = [(task.completed, task.total, task.fields) for task in watcher._bar.tasks]
    assert shown == [(5000, None, {"count": "5,000", "figures": "reading pairs"}),
                     (2000, 3000, {"count": "2,000/3,000", "figures": "cutting pairs"})]  # fmt: skip
    watcher.progress(Progress(3, 70, 0, 1.0, 0.1, 9.0, "tok", 1.0, 2.0, None))
    (task,) = watcher._bar.tasks
    assert task.fields["count"] == "3/70" and math.isclose(task.percentage, 300 / 70)
