"""Experiments of docs/results.md: recipes load with every variant, and data sets are read correctly."""

import gzip
from pathlib import Path

import pytest
from benchmarks.results import prepare
from benchmarks.results.__main__ import read_score, settings_of
from benchmarks.results.experiments import EXPERIMENTS
from benchmarks.results.page import render

from clearhead.config import build
from clearhead.tasks.registry import get_task
from clearhead.training.setup.request import check_settings

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_variant_is_a_valid_config(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = EXPERIMENTS[name]
    monkeypatch.chdir(ROOT)
    for variant in experiment.variants:
        settings = settings_of(experiment, variant, seed=1)
        task = get_task(str(settings.pop("task", "translate")))
        config = build(settings, preset=str(settings.pop("preset", "")), base=task.base)
        check_settings(task, settings, config)
        lengths = [getattr(config.training, field) > 0 for field in ("steps", "epochs", "minutes")]
        assert sum(lengths) == 1


def write_gzip(path: Path, text: str, encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(encoding)))


def test_questions_become_texts_and_labels(tmp_path: Path) -> None:
    questions = [f"HUM:ind Who is caf\xe9 {number} ?" for number in range(40)]
    write_gzip(tmp_path / "trec" / "train_5500.label.gz", "\n".join(questions) + "\n", "latin-1")
    write_gzip(tmp_path / "trec" / "TREC_10.label.gz", "NUM:date When ?\n", "latin-1")
    files = prepare.trec(tmp_path, tmp_path)
    assert Path(files.tests["test"][0]).read_text(encoding="utf-8") == "When ?\tNUM\n"
    train, valid = (paths[0].read_text(encoding="utf-8").splitlines() for paths in (files.train, files.valid))
    assert len(train) + len(valid) == 40 and len(valid) == 2 and not set(train) & set(valid)
    assert train[0] == "Who is caf\xe9 0 ?\tHUM" or train[0] == "Who is caf\xe9 1 ?\tHUM"


def test_commands_become_pairs(tmp_path: Path) -> None:
    for part in ("train", "test"):
        write_gzip(tmp_path / "scan" / f"tasks_{part}_simple.txt.gz", "IN: walk twice OUT: I_WALK I_WALK\n")
    files = prepare.scan("simple", tmp_path, tmp_path)
    assert Path(files.tests["test"][0]).read_text(encoding="utf-8") == "walk twice\tI_WALK I_WALK\n"


def test_the_text_is_split_in_order(tmp_path: Path) -> None:
    text = "".join(f"{number:04d}\n" for number in range(1000))
    write_gzip(tmp_path / "text" / "shakespeare.txt.gz", text)
    files = prepare.shakespeare(tmp_path, tmp_path)
    parts = [Path(paths[0]).read_text(encoding="utf-8") for paths in (files.train, files.valid, *files.tests.values())]
    assert "".join(parts) == text and [len(part) for part in parts] == [4250, 250, 500]


def test_a_section_shows_mean_and_spread() -> None:
    experiment = EXPERIMENTS["sst2"]
    facts = {"minutes": 1.0, "cpu_minutes": 2.0, "steps": 10, "parameters": 1234}
    runs = [
        {"variant": "", "seed": seed, "machine": "2 cores", "training": facts,
         "tests": {"dev": {"accuracy.score": score, "macro_f1.score": score, "signature": "examples:5|labels:2"}}}
        for seed, score in ((1, 0.80), (2, 0.82))
    ]  # fmt: skip
    section = render(experiment, runs)
    assert "| sst2 | 2 | 81.00 (80.00 to 82.00) | 81.00 (80.00 to 82.00) | 1,234 | 10 | 1.0 | 2.0 |" in section
    assert read_score({"bleu": {"score": 3}}, "bleu.score") == 3.0
