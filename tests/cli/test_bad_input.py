"""Invalid input to every command and reader: one error line that states the remedy; no text is lost."""

import hashlib
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PillowImage

from clearhead.cli.main import main
from clearhead.tasks.registry import TASKS
from tests.tasks.all_tasks import TRAINABLE_TASKS, Models, write_files

Run = pytest.CaptureFixture[str]
VERBS = ("translate", "classify", "tag", "fill", "generate", "score")
LONG = "The old dog eats the grass " * 300  # one sentence with more tokens than any of the models accepts


def set_stdin(monkeypatch: pytest.MonkeyPatch, text: str | bytes) -> None:
    """Replace standard input."""
    data = text.encode() if isinstance(text, str) else text
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def refused(capsys: Run) -> str:
    """Return the single error line of a command that fails before it prints anything."""
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.rstrip("\n").splitlines()[-1].startswith("clearhead"), captured.err
    return captured.err.rstrip("\n").splitlines()[-1]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_the_wrong_command_names_the_right_one(
    task: str, verb: str, models: Models, tmp_path: Path, capsys: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, fitting = models[task], TASKS[task].verb
    capsys.readouterr()
    pairs = tmp_path / "p.tsv"
    pairs.write_text("The dog eats.\tThe dog eats.\n", encoding="utf-8")
    set_stdin(monkeypatch, "The dog eats.\n")
    more = {"score": [str(pairs)], "fill": ["The [MASK] eats."]}.get(verb, [])
    code = main([verb, str(folder), *more])
    if (verb == fitting and task not in ("image", "caption")) or (verb, task) == ("score", "translate"):
        assert code == 0, capsys.readouterr().err
        return
    assert code == 2
    error = refused(capsys)
    if verb == fitting:
        assert f"reads images, not text: expected image files, as in clearhead {verb} {folder} image.png" in error
    else:
        assert f"was trained for the task {task}: it cannot {verb}" in error
        assert error.endswith(f"Use clearhead {fitting} {folder}")


EMPTY = [
    ("translate", "translate", "\n  \n", "\n\n"),
    ("translate", "translate", "", ""),
    ("denoise", "translate", "\n", "\n"),
    ("tag", "tag", "\n  \n", "\n  \n"),
    ("tag", "tag", "", ""),
    ("classify", "classify", "", ""),
    ("classify", "classify", "\n  \n", "\n\n"),
    ("mlm", "embed", "\n  \n", "\n\n"),
    ("mlm", "fill", "", ""),
    ("mlm", "fill", "\n  \n\n", "\n\n"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "verb", "text", "expected"), EMPTY)
def test_empty_input_gives_empty_output(
    task: str, verb: str, text: str, expected: str, models: Models, capsys: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = models[task]
    capsys.readouterr()
    set_stdin(monkeypatch, text)
    assert main([verb, str(folder)]) == 0
    assert capsys.readouterr().out == expected


def test_an_empty_text_as_an_argument(models: Models, capsys: Run) -> None:
    masked, writer = str(models["mlm"]), str(models["lm"])
    capsys.readouterr()
    assert main(["fill", masked, ""]) == 2
    assert "the text has no mask" in refused(capsys)
    assert main(["generate", writer, "", "--max-tokens", "3"]) == 0


@pytest.mark.parametrize(
    ("task", "verb", "message"),
    [
        ("translate", "translate", r"line 2 has [\d,]+ tokens, the model accepts 1,023; split the line"),
        ("denoise", "translate", r"line 2 has [\d,]+ tokens, the model accepts 1,023; split the line"),
        ("classify", "classify", r"line 2 has [\d,]+ tokens, the model accepts 1,022; split the line"),
        ("mlm", "fill", r"line 2 has [\d,]+ tokens, the model accepts 254; split the line"),
        ("mlm", "embed", r"line 2 has [\d,]+ tokens, the model accepts 254; split the line"),
        ("tag", "tag", r"line 2 has [\d,]+ tokens, the model accepts 254; split the line"),
    ],
)
def test_long_lines_stop_names_the_line(
    task: str, verb: str, message: str, models: Models, capsys: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = models[task]
    capsys.readouterr()
    set_stdin(monkeypatch, f"The [MASK] dog eats.\n{LONG} [MASK]\n")
    assert main([verb, str(folder), "--long-lines", "stop"]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_long_line_is_tagged_whole(models: Models, capsys: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(models["tag"])
    capsys.readouterr()
    set_stdin(monkeypatch, LONG)
    assert main(["tag", folder, "--json"]) == 0
    assert [word["word"] for word in json.loads(capsys.readouterr().out)["words"]] == LONG.split()


def test_a_prompt_that_is_too_long_is_refused(models: Models, capsys: Run) -> None:
    folder = str(models["lm"])
    capsys.readouterr()
    assert main(["generate", folder, LONG]) == 2
    assert re.search(r"the prompt has [\d,]+ tokens, the model accepts 15; shorten it", refused(capsys))


TESTS = [
    # task, file, content, message
    ("translate", "t.tsv", f"The dog\tThe dog\n{LONG}\tThe dog\n", r"line 2 has [\d,]+ tokens, the model accepts"),
    ("translate", "t.tsv", "The dog\n", r"t\.tsv:1: expected source TAB target, found no TAB in 'The dog'"),
    ("translate", "t.jsonl", '{"source": "a"}\n', r't\.jsonl:1: expected the key "target", found the keys source'),
    ("classify", "t.tsv", f"{LONG}\tgood\n", r"t\.tsv: line 1 has [\d,]+ tokens, the model accepts 1,024; split it"),
    ("classify", "t.tsv", "The dog\tgood\nThe cat\tugly\n", r"t\.tsv:2: expected a label .*, found 'ugly'"),
    ("classify", "t.jsonl", '{"text": "a", "label": 3}\n', r't\.jsonl:1: expected a string as "label", got \'?3'),
    ("tag", "t.conll", "The O\ndog E-X\n", r"t\.conll:2: expected the tag O, or B- or I- and a type .* BIO tags"),
    ("tag", "t.conll", "The O\ndog B-\n", r"t\.conll:2: expected the tag O, or B- or I- and a type"),
    ("tag", "t.conll", "The O\ndog B-Y\n", r"t\.conll:2: expected a type of the training data \(X\), found 'Y'"),
    ("tag", "t.conll", "The\n", r"t\.conll:1: expected a word and its tag"),
    ("mlm", "t.txt", "\n \n", r"t\.txt: expected text, found only blank lines"),
    ("lm", "t.txt", "", r"t\.txt: expected text, the file is empty"),
    ("denoise", "t.jsonl", "[]\n", r't\.jsonl:1: expected an object with "text", got'),
    ("image", "t.png", "not an image", r"t\.png"),
    ("caption", "t.tsv", "gone.png\ta dog\n", r"t\.tsv:1: .*gone\.png: no such file"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "name", "text", "message"), TESTS, ids=[f"{t[0]} {t[3][:30]}" for t in TESTS])
def test_a_bad_test_file_is_named_by_its_line(
    task: str, name: str, text: str, message: str, models: Models, tmp_path: Path, capsys: Run
) -> None:
    folder = models[task]
    capsys.readouterr()
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert main(["evaluate", str(folder), str(tmp_path / name)]) == 2
    assert re.search(message, refused(capsys))


@pytest.mark.parametrize("task", ["mlm", "lm"])
def test_long_test_texts_are_scored_whole(task: str, models: Models, tmp_path: Path, capsys: Run) -> None:
    """A sliding window covers a long text: twice the text gives twice the number of scored tokens."""
    folder, counts = str(models[task]), []
    for times in (1, 2):
        path = tmp_path / f"{times}.txt"
        path.write_text(LONG * times, encoding="utf-8")
        capsys.readouterr()
        assert main(["evaluate", folder, str(path), "--json"]) == 0
        key = {"mlm": "masked", "lm": "tokens"}[task]
        counts.append(int(re.findall(rf"{key}:(\d+)", capsys.readouterr().out)[0]))
    assert counts[1] == pytest.approx(2 * counts[0], rel=0.02) and counts[0] > 100


BAD_FILES = [
    ("{folder}/none.tsv", "no such file|no such folder"),
    ("{folder}", "this is a folder|found the file|the folder is empty"),
    ("{folder}/latin.tsv", "expected UTF-8, found the byte 0xE4|is a file|no folder"),
    ("{folder}/wide.tsv", "got UTF-16|is a file|no folder"),
    ("{folder}/empty.tsv", "the file is empty|is a file|no folder"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "message"), BAD_FILES, ids=[name for name, _ in BAD_FILES])
@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_a_file_that_cannot_be_read_is_named(task: str, name: str, message: str, tmp_path: Path, capsys: Run) -> None:
    (tmp_path / "latin.tsv").write_bytes(b"The b\xe4r\tB\n" * 20)
    (tmp_path / "wide.tsv").write_bytes("The bear\tB\n".encode("utf-16"))
    (tmp_path / "empty.tsv").write_bytes(b"")
    path = name.format(folder=tmp_path)
    assert main(["train", "--task", task, path, "--out", str(tmp_path / "out"), "--steps", "1"]) == 2
    error = refused(capsys)
    assert re.search(message, error) and str(tmp_path) in error
    assert not (tmp_path / "out").exists()


def test_files_that_are_not_images(models: Models, tmp_path: Path, capsys: Run) -> None:
    folder, wide, torn = str(models["image"]), tmp_path / "wide.png", tmp_path / "torn.png"
    PillowImage.fromarray(np.zeros((4, 6), dtype=np.uint8)).save(wide)
    whole = next((write_files(tmp_path, "image") / "0").iterdir())
    torn.write_bytes(whole.read_bytes()[:-20])
    (tmp_path / "text.png").write_text("not an image", encoding="utf-8")
    for name in ("wide.png", "torn.png", "text.png"):
        capsys.readouterr()
        assert main(["classify", folder, str(tmp_path / name)]) == 2
        assert name in refused(capsys)


def test_a_label_that_only_the_validation_file_has(tmp_path: Path, capsys: Run) -> None:
    for task, bad in (("classify", "The dog\tugly\n"), ("tag", "The O\ndog B-NEW\n")):
        (tmp_path / task).mkdir()
        valid = tmp_path / task / "valid"
        valid.write_text(bad, encoding="utf-8")
        train = write_files(tmp_path / task, task)
        options = ["--task", task, "--valid", str(valid), "--out", str(tmp_path / "out"), "--steps", "1"]
        assert main(["train", str(train), *options]) == 2
        assert re.search(r"expected a (label|type) of the training data .*, found '(ugly|NEW)'", refused(capsys))


def changed(folder: Path, to: Path, changes: dict[str, dict[str, int]]) -> Path:
    """Return a copy of a model with other settings and a matching checksum."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text(encoding="utf-8"))
    for section, values in changes.items():
        config[section].update(values)
    content = json.dumps(config).encode()
    (to / "config.json").write_bytes(content)
    manifest = json.loads((to / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"]["config.json"] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (to / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return to


BEYOND = [
    (["--beam", "4097"], {}, "decoding.beam_size=4097 is too large; expected 1 to 4,096."),
    (["--beam", "4097", "--set", "decoding.no_repeat_ngram_size=2"], {}, "expected 1 to 4,096."),
    ([], {"decoding": {"beam_size": 10_000_000}}, "decoding.beam_size=10000000 is too large; expected 1 to 4,096."),
    (["--sample", "--n-best", "70000"], {}, "line 1 asks for 70,000 samples; expected at most 65,535."),
    (["--set", "decoding.coverage_penalty=1e300"], {}, "input should be less than or equal to 1000."),
    ([], {"model": {"decoder_start_id": 6000}}, "model.decoder_start_id=6000 is not a token id; the vocabulary has "),
    ([], {"model": {"eos_id": 7000}}, "model.eos_id=7000 is not a token id; the vocabulary has "),
    ([], {"model": {"pad_id": 99999}}, "model.pad_id=99999 is not a token id; the vocabulary has "),
]


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize(("options", "changes", "error"), BEYOND, ids=[error for _, _, error in BEYOND])
def test_models_that_do_not_fit_into_memory_are_refused(
    options: list[str], changes: dict[str, dict[str, int]], error: str, engine: str,
    models: Models, tmp_path: Path, capsys: Run, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = changed(models["translate"], tmp_path / "model", changes)
    capsys.readouterr()
    set_stdin(monkeypatch, "The dog eats.\n")
    assert main(["translate", str(folder), "--engine", engine, "--threads", "1", *options]) == 2
    assert error in refused(capsys)


@pytest.mark.parametrize("verb", ["translate", "embed"])
def test_more_threads_than_a_machine_has_are_not_started(
    verb: str, models: Models, capsys: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for threads in ("1", "100000"):
        set_stdin(monkeypatch, "The dog eats.\n")
        capsys.readouterr()
        assert main([verb, str(models["translate"]), "--threads", threads]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1] != ""
