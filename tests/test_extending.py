"""The examples of docs/extending.md run, and its sections name at most three files, which exist."""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead import config, tasks
from clearhead.config import model as model_config
from clearhead.data.readers import tables
from clearhead.model import registry as model_registry
from clearhead.serving import app as serving_app
from clearhead.study import registry as study_registry
from clearhead.tasks import registry as task_registry
from tests.inspection.small_models import TEXT, small_model
from tests.serving.browser import browsing, need_browser
from tests.serving.conftest import DONE, serving_here
from tests.trained_model import Trained

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", DOCUMENT, re.DOTALL | re.MULTILINE))
SIZE = {"model": {"model_dim": 32}, "tokenizer": {"vocab_size": 300}, "training": {"batch_tokens": 300}}
MAX_LINES = 40
MAX_FILES = 3
TMX = """<tmx version="1.4"><header/><body>
<tu><tuv xml:lang="en"><seg>A dog.</seg></tuv><tuv xml:lang="de"><seg>Ein Hund.</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>Eine Katze.</seg></tuv><tuv xml:lang="en"><seg>A cat.</seg></tuv></tu>
</body></tmx>
"""


def examples(section: str, language: str = "python") -> list[str]:
    """Return the code blocks of a section."""
    return re.findall(rf"^```{language}\n(.*?)^```", SECTIONS[section], re.DOTALL | re.MULTILINE)


def run(code: str) -> dict[str, Any]:
    """Run an example and return its names."""
    names: dict[str, Any] = {"__name__": "example"}
    sys.modules["example"] = sys.modules[__name__]  # dataclasses look their module up
    exec(code, names)  # our own document
    del sys.modules["example"]
    return names


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Restore all registries, and work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model_config, "FAMILIES", [*model_config.FAMILIES])
    copied = [
        (model_config, "_FAMILIES_USING"), (model_config, "_FAMILIES_OF_HEAD"), (model_registry, "ENCODERS"),
        (task_registry, "TASKS"), (tables, "NAMED_READERS"), (study_registry, "STUDIES"),
    ]  # fmt: skip
    for module, name in copied:
        monkeypatch.setattr(module, name, dict(getattr(module, name)))


@pytest.fixture
def small_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train with small settings, on one thread."""
    train = clearhead.train

    def train_small(*files: str, task: str, settings: dict[str, Any] | None = None, **options: Any) -> Any:
        settings = config.merge(SIZE, settings or {})
        return train(*files, task=task, settings=settings, threads=1, **options)

    monkeypatch.setattr(clearhead, "train", train_small, raising=False)


@pytest.mark.parametrize("section", SECTIONS)
def test_section_names_few_files_and_has_a_short_example(section: str) -> None:
    listed = re.findall(r"^- `([\w/.]+)`(.*)", SECTIONS[section], re.MULTILINE)
    assert 1 <= len(listed) <= MAX_FILES
    assert len(re.findall(r"^- ", SECTIONS[section], re.MULTILINE)) == len(listed)
    for path, rest in listed:
        assert (ROOT / path).exists() != rest.startswith(" (new"), path
    codes = [code for language in ("python", "js") for code in examples(section, language)]
    assert codes
    assert sum(len(code.splitlines()) for code in codes) <= MAX_LINES


def test_family_is_trained_saved_and_loaded(small_training: None) -> None:
    Path("labelled.tsv").write_text("".join(f"The dog sleeps {n} times.\t{n % 2}\n" for n in range(40)))
    (code,) = examples("Add a model family")
    run(code)
    model = clearhead.load("runs/bag")
    assert model.config.model.family == "bag_of_words" and model.engine_choice.name == "torch"
    assert type(model.network.backbone).__name__ == "BagOfWords"
    assert model.classify("The dog sleeps.").label in {"0", "1"}


def test_task_is_trained_and_evaluated(small_training: None, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("text.txt").write_text("".join(f"The dog sleeps {n} times.\n" for n in range(40)))
    *modules, registration = examples("Add a task")
    for module in modules:
        path = Path("plugins") / module.splitlines()[0].removeprefix("# src/clearhead/tasks/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(module, encoding="utf-8")
        (path.parent / "__init__.py").touch()
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(Path("plugins").absolute())])
    try:
        names = run(registration)
    finally:
        for name in [name for name in sys.modules if name.startswith("clearhead.tasks.reversal")]:
            del sys.modules[name]
    assert names["model"].config.task == "reverse"
    records = Path("runs/reverse/training/validation/records.jsonl").read_text(encoding="utf-8")
    assert re.search(r'"source": "The dog sleeps (\d+) times.", "target": "times. \1 sleeps dog The"', records)


def test_reader_reads_the_new_suffix(capsys: pytest.CaptureFixture[str]) -> None:
    Path("memory.tmx").write_text(TMX, encoding="utf-8")
    (code,) = examples("Add a reader for a file format")
    run(code)
    assert capsys.readouterr().out == "A dog. Ein Hund.\nA cat. Eine Katze.\n"
    assert tables.is_table(Path("memory.tmx"))


def test_rule_bans_a_token(trained: Trained) -> None:
    Path("runs").mkdir()
    shutil.copytree(trained.folder, "runs/de")
    (code,) = examples("Add a decoding rule")
    names = run(code)
    (banned,) = names["banned"]
    assert banned in names["before"].tokens and banned not in names["after"].tokens
    assert names["after"].tokens


def test_engine_answers_requests(trained: Trained) -> None:
    Path("runs").mkdir()
    shutil.copytree(trained.folder, "runs/de")
    (code,) = examples("Add an engine")
    names = run(code)
    model, engine = names["model"], names["engine"]
    seconds = engine.seconds
    assert seconds > 0
    assert model.translate("The dog sleeps.", engine=engine) == model.translate("The dog sleeps.")
    assert engine.seconds > seconds


def test_study_runs_and_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = examples("Add a study")
    names = run(code)
    assert capsys.readouterr().out == "holds\n"
    assert not names["results"].missing_cells()
    assert [*Path("results").rglob("*.svg")]


def test_panel_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_browser()
    page = tmp_path / "page"
    shutil.copytree(serving_app.PAGE, page)
    for code in examples("Add a panel to the page", "js"):
        path = page / code.splitlines()[0].removeprefix("// src/clearhead/serving/page/")
        path.write_text((path.read_text() if path.exists() else "") + code, encoding="utf-8")
    monkeypatch.setattr(serving_app, "PAGE", page)
    with serving_here(serving_app.make_app({"one": small_model("T5")})) as url, browsing(tmp_path) as browser:
        browser.open(f"{url}/?text={TEXT.replace(' ', '%20')}")
        browser.until(DONE)
        assert browser.texts("#tabs button")[-1] == "Lengths"
        browser.click("#tab-lengths")
        browser.until("document.querySelector('#lengths')")
        assert re.fullmatch(r"\d+ input tokens, \d+ output tokens", browser.text("#lengths"))
        assert browser.console() == []


def test_panel_is_registered_as_the_others_are() -> None:
    main = (serving_app.PAGE / "main.js").read_text(encoding="utf-8")
    _, registration = examples("Add a panel to the page", "js")
    assert 'import { tree } from "./panels/tree.js";' in main
    assert re.search(r"^const PANELS = \[.*\btree\b.*\];$", main, re.MULTILINE)
    assert 'import { lengths } from "./panels/lengths.js";' in registration
