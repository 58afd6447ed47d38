"""The commands and the Python code of README.md and docs/quickstart.md run on small data; recipes load."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

import clearhead
from clearhead.cli.main import main
from clearhead.config import build
from clearhead.training.run import TrainRequest, prepare
from tests.trained_model import SETTINGS, Trained, applicable_settings

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
QUICKSTART = ROOT / "docs" / "quickstart.md"


def commands(document: Path) -> list[str]:
    """Return the clearhead commands of a document's code blocks, without their comments."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", document.read_text(encoding="utf-8"), re.S | re.M)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    return [line.split(" #")[0].strip() for line in lines if line.startswith("clearhead ")]


def write_examples() -> None:
    """Write small files of every kind that the commands read."""
    animals = ("dog", "cat", "bird", "horse")
    texts = [f"The {animals[n % 4]} sleeps {n} times." for n in range(40)]
    Path("labelled.tsv").write_text("".join(f"{text}\t{n % 2}\n" for n, text in enumerate(texts)), encoding="utf-8")
    Path("text.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    tagged = ("\n".join(f"{word} {'B-X' if word in animals else 'O'}" for word in text.split()) for text in texts)
    Path("names.conll").write_text("\n\n".join(tagged) + "\n", encoding="utf-8")


VERBS = {
    README: {"train", "translate", "inspect"},
    QUICKSTART: {
        "data", "train", "translate", "evaluate", "score", "info", "align", "inspect", "export", "runs", "plot",
        "classify", "tag", "fill", "generate",
    },
}  # fmt: skip


@pytest.mark.parametrize("document", VERBS, ids=lambda path: path.stem)
def test_commands_run_in_order(
    document: Path, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(trained.test, "test.tsv")
    shutil.copy(trained.train, "pairs.tsv")
    Path("in.txt").write_text("The dog sleeps.\n", encoding="utf-8")
    write_examples()
    listed = commands(document)
    assert {command.split()[1] for command in listed} == VERBS[document]
    for command in listed:
        words, _, given = command.partition("<")
        arguments = shlex.split(words.replace("20000", "600").replace("--minutes 10", "--steps 3"))[1:]
        if arguments[0] == "train":
            task = arguments[arguments.index("--task") + 1] if "--task" in arguments else "translate"
            settings = applicable_settings(task, SETTINGS, "lstm" if "model.family=lstm" in arguments else "")
            if "--from" in arguments:  # the shape and the tokenizer are those of the model it starts from
                settings = [setting for setting in settings if setting.startswith("training")]
            arguments += ["--threads", "1", *(word for setting in settings for word in ("--set", setting))]
        with Path(given.strip() or "in.txt").open("rb") as stream:
            monkeypatch.setattr("sys.stdin", type("Stream", (), {"buffer": stream, "isatty": lambda self: False})())
            assert main(arguments) == 0, command


def test_python_runs(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", QUICKSTART.read_text(encoding="utf-8"), re.S)
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    shutil.copytree(trained.folder, "runs/de")
    calls: list[object] = []
    monkeypatch.setattr(clearhead, "train", lambda *args, **kwargs: calls.append((args, kwargs)), raising=False)
    names: dict[str, object] = {}
    exec(code, names)  # our own document
    assert calls == [(("pairs.tsv",), {"out": "runs/de", "minutes": 10})]
    weights = names["weights"]
    assert weights.shape[:2] == (2, 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda path: path.stem)
def test_recipes_load(path: Path) -> None:
    import tomllib

    from clearhead.tasks.registry import get_task

    settings = tomllib.loads(path.read_text(encoding="utf-8"))
    base = get_task(settings.get("task", "translate")).base
    training = build(settings, preset=settings.get("preset", ""), base=base).training
    assert training.steps or training.epochs or training.minutes


def test_preparing_twice_gives_the_same(trained: Trained, tmp_path: Path) -> None:
    from clearhead.training.loop.callbacks import NullCallback

    request = TrainRequest([trained.train], tmp_path / "out", settings={"tokenizer": {"vocab_size": 600}})
    first, second = prepare(request, NullCallback()), prepare(request, NullCallback())
    assert first.tokenizer and second.tokenizer and first.tokenizer.to_json() == second.tokenizer.to_json()
    assert first.config == second.config
    assert first.data == second.data


def row_values(rows: list[str], column: int) -> list[float]:
    """Return the numbers in one column of table rows."""
    return [float(row.split("|")[column].split()[0].strip("*")) for row in rows]


def test_speeds_are_those_of_the_benchmarks() -> None:
    text = " ".join(README.read_text(encoding="utf-8").split())
    tables = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    decoding = re.findall(r"^\| (?:tiny|small|512 wide), (?:float32|int8), .*$", tables, re.MULTILINE)
    assert len(decoding) == 33 and min(row_values(decoding, 4)) > 1 and "all 33 rows" in text
    decoding = [row for row in decoding if "AVX2" not in row and "shortlist" not in row]
    whole = row_values([row for row in decoding if "whole set" in row], 4)
    alone = row_values([row for row in decoding if "one by one" in row], 4)
    assert f"{min(whole):.2f} to {max(whole):.1f} times" in text
    assert f"{min(alone):.1f} to {max(alone):.1f} times" in text
    for peer, words in (("Hugging Face Marian", "times the tokens per second of"), ("EOLE", "times those of EOLE")):
        rows = re.findall(rf"^\| (?:tiny|small|paper-base) \| {peer} \|.*$", tables, re.MULTILINE)[:3]
        ratios = row_values(rows, 5)
        assert len(ratios) == 3 and f"{min(ratios):.2f} to {max(ratios):.2f} {words}" in text
    assert "0.35 s" in text and "on 2026-11-18" in tables.lower() and "0.35 s" in tables
