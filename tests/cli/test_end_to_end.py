"""End to end: data, train, translate, evaluate and info, with user errors and signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import clearhead
from clearhead.bundle import read_manifest
from clearhead.cli.main import main
from tests.tasks.all_tasks import Models
from tests.trained_model import SETTINGS, Trained, train_small

LINES = ["The dog sees the cat.", "", "The old king sleeps.", "A child laughs.", "  "]


def run(*arguments: str | Path, text: str | bytes = "") -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process."""
    stdin = text if isinstance(text, bytes) else text.encode()
    done = subprocess.run(
        [sys.executable, "-m", "clearhead", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_training_saves_a_complete_bundle(trained: Trained) -> None:
    names = {path.name for path in trained.folder.iterdir()}
    assert names == {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "manifest.json",
        "README.md",
        "metrics.jsonl",
        "training",
    }
    manifest = read_manifest(trained.folder)
    assert manifest.training["state"] == "finished" and manifest.training["steps"] == 200
    assert manifest.weights_kind in {"best", "averaged", "last"}
    entries = [json.loads(line) for line in (trained.folder / "metrics.jsonl").read_text().splitlines()]
    losses = [entry["loss"] for entry in entries if "loss" in entry]
    assert losses[-1] < losses[0] - 1
    assert [entry["step"] for entry in entries if "valid" in entry] == [40, 80, 120, 160, 200]


def test_translate_keeps_lines_and_order(trained: Trained) -> None:
    done = run("translate", trained.folder, "--threads", "1", text="\n".join(LINES) + "\n")
    assert done.returncode == 0, done.stderr
    output = done.stdout.split("\n")
    assert len(output) == 6 and output[1] == output[4] == output[5] == ""
    model = clearhead.load(trained.folder)
    assert output[2] == model.translate(LINES[2]).text != ""


def test_translate_json_and_n_best(trained: Trained) -> None:
    done = run("translate", trained.folder, "--beam", "3", "--n-best", "3", "--json", text="The dog sees the cat.\n")
    record = json.loads(done.stdout)
    assert record["source"] == "The dog sees the cat."
    assert len(record["n_best"]) == 3 and record["n_best"][0]["text"] == record["text"]
    scores = [one["score"] for one in record["n_best"]]
    assert scores == sorted(scores, reverse=True)
    assert record["log_prob"] == pytest.approx(sum(record["token_log_probs"]), abs=1e-4)
    plain = run("translate", trained.folder, "--beam", "3", "--n-best", "3", text="The dog sees the cat.\n")
    assert plain.stdout.splitlines() == [one["text"] for one in record["n_best"]]


def test_a_pipe_is_answered_line_by_line(trained: Trained) -> None:
    command = [sys.executable, "-m", "clearhead", "translate", str(trained.folder), "--threads", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        for line in ("The dog sleeps.", "The cat sleeps."):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith("\n")
        process.stdin.close()
        assert process.wait() == 0


def test_evaluate_prints_scores_with_signatures(trained: Trained) -> None:
    done = run("evaluate", trained.folder, trained.test, "--json", "--beam", "2")
    report = json.loads(done.stdout)
    assert report["examples"] == 40
    assert report["bleu"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    assert report["chrf"]["signature"].startswith("nrefs:1|case:mixed")
    assert 1 < report["perplexity"] < 400 and 0 <= report["exact_match"] <= 1
    plain = run("evaluate", trained.folder, trained.test, "--beam", "2").stdout
    assert re.search(rf"^BLEU {report['bleu']['score']:.2f} nrefs:1", plain, re.M)
    assert re.search(rf"^chrF {report['chrf']['score']:.2f} nrefs:1", plain, re.M)


def test_evaluate_takes_line_files_and_compares(trained: Trained, tmp_path: Path) -> None:
    pairs = [line.split("\t") for line in trained.test.read_text(encoding="utf-8").splitlines()]
    (tmp_path / "t.en").write_text("".join(f"{pair[0]}\n" for pair in pairs), encoding="utf-8")
    (tmp_path / "t.de").write_text("".join(f"{pair[1]}\n" for pair in pairs), encoding="utf-8")
    done = run("evaluate", trained.folder, tmp_path / "t.en", tmp_path / "t.de", "--against", trained.folder, "--json")
    report = json.loads(done.stdout)
    assert report["against"]["bleu"] == report["bleu"]
    assert report["against"]["comparison"]["bleu"]["p_value"] == 1.0


def test_info_shows_the_bundle(trained: Trained) -> None:
    facts = json.loads(run("info", trained.folder, "--json").stdout)
    assert facts["training"]["parameters"] > 10_000
    assert facts["config"]["model"]["model_dim"] == 32
    shown = run("info", trained.folder).stdout
    assert "model_dim" in shown and "fingerprint" in shown


def test_info_names_the_engine(trained: Trained, models: Models) -> None:
    assert json.loads(run("info", trained.folder, "--json").stdout)["engine"] == {"name": "native", "reason": ""}
    assert re.search(r"^engine +native$", run("info", trained.folder).stdout, re.M)
    images = run("info", models["image"]).stdout
    assert re.search(r"^engine +torch \(model.family=vit runs in torch\)$", images, re.M), images


def test_the_same_training_gives_the_same_weights(trained: Trained, tmp_path: Path) -> None:
    retrained = train_small(tmp_path)
    assert (retrained.folder / "model.safetensors").read_bytes() == (trained.folder / "model.safetensors").read_bytes()


def test_python_api_trains_loads_and_translates(trained: Trained, tmp_path: Path) -> None:
    settings = clearhead_settings()
    model = clearhead.train(trained.train, tmp_path / "m", steps=3, settings=settings, threads=1)
    assert model.manifest.training["steps"] == 3
    assert isinstance(model.translate("The dog sleeps.").text, str)
    report = clearhead.evaluate(tmp_path / "m", trained.test)
    assert report.to_json()["examples"] == 40


def clearhead_settings() -> dict[str, dict[str, str]]:
    """Return the settings of the command line as nested dictionaries."""
    from clearhead.config import parse_assignments

    return parse_assignments(SETTINGS)


def test_dry_run_prints_choices_and_writes_nothing(trained: Trained, tmp_path: Path) -> None:
    done = run("train", trained.train, "--out", tmp_path / "none", "--minutes", "2", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "none").exists()
    assert "chosen: preset tiny: a larger model would overfit 1,500 pairs" in done.stderr
    assert re.search(r"updates \(.* epochs\) of .* s \(measured\): about .* minutes; memory .* MiB", done.stderr)


def test_minutes_are_converted_to_steps(trained: Trained, tmp_path: Path) -> None:
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    done = run("train", trained.train, "--out", tmp_path / "m", "--minutes", "0.05", *sets)
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["training"]["steps"] >= 20
    training = read_manifest(tmp_path / "m").training
    assert training["planned_steps"] == training["steps"] and training["steps"] >= 20  # type: ignore[operator]


def test_a_finished_run_is_refused_and_overwritten_on_demand(trained: Trained, tmp_path: Path) -> None:
    first = train_small(tmp_path, steps=2)
    arguments: list[str | Path] = ["train", first.train, "--out", first.folder, "--steps", "1"]
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "has a finished run" in done.stderr and "--overwrite" in done.stderr
    assert read_manifest(first.folder).training["steps"] == 2
    assert run(*arguments, "--overwrite").returncode == 0
    assert read_manifest(first.folder).training["steps"] == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_the_best_model(trained: Trained, tmp_path: Path, number: int, code: int) -> None:
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    command = [sys.executable, "-m", "clearhead", "train", str(trained.train), "--out", str(tmp_path / "m"), "--steps",
               "100000", *sets]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        for line in process.stderr:
            if line.startswith("step 1/"):
                break
        time.sleep(0.5)
        os.kill(process.pid, number)
        rest = process.stderr.read()
        assert process.wait(60) == code, rest
    assert read_manifest(tmp_path / "m").training["state"] == "interrupted"
    assert clearhead.load(tmp_path / "m").translate("The dog sleeps.").finish_reason


BAD = [
    (["translate", "{none}"], "none"),
    (["translate", "{model}", "--n-best", "9"], "n_best=9 needs a beam size of at least 9, not 4"),
    (["translate", "{model}", "--beam", "0"], "decoding.beam_size=0"),
    (["translate", "{model}", "--set", "model.dropout=0"], "expected decoding"),
    (["translate", "{model}", "--set", "decoding.length_penalti=1"], "did you mean decoding.length_penalty?"),
    (["translate", "{model}", "--set", "decoding.sampling.seed=1"], "sampling has no meaning for clearhead tra"),
    (["evaluate", "{model}", "{none}"], "no such file"),
    (["info", "{none}"], "none"),
    (["train", "{none}", "--out", "{out}"], "no such file"),
    (["train", "{train}", "--out", "{out}", "--preset", "huge"], "unknown preset 'huge'"),
    (["train", "{train}", "--out", "{out}", "--steps", "5", "--minutes", "1"], "set twice"),
    (["train", "{train}", "--out", "{out}", "--recipe", "{none}"], "cannot read the recipe"),
    (["train", "{train}", "--out", "{out}", "--valid", "{train}", "--set", "data.validation_max=9"],
     "nothing is held out"),
    (["train", "{train}", "--out", "{out}", "--set", "model.family=gru", "--set", "model.num_heads=2"], "num_heads"),
    (["train", "{train}", "--out", "{train}"], "is a file; --out expects a folder"),
    (["train", "{train}", "--out", "{data}"], "has no run of clearhead"),
    (["train", "{train}", "--out"], "--out"),
    (["train", "{train}"], "--out"),
    (["data", "grammar", "--out", "x.csv"], "ends in .tsv or .jsonl"),
    (["data", "grammar", "--out", "x.tsv", "--split", "tset"], "unknown split 'tset'"),
    (["data", "grammar", "--out", "x.tsv", "--distance", "60-2"], "expected LOW-HIGH between 2 and 60"),
    (["fly"], "fly"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(a)[:50] for a, _ in BAD])
def test_user_errors_are_one_line_and_exit_with_2(
    arguments: list[str], message: str, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"none": tmp_path / "none", "model": trained.folder, "out": tmp_path / "out", "train": trained.train,
              "data": trained.train.parent}  # fmt: skip
    assert main([word.format(**places) for word in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.rstrip("\n").splitlines()[-1].startswith("clearhead")
    assert len(captured.err.rstrip("\n").splitlines()) == 1, captured.err
    assert message in captured.err


def test_invalid_text_is_reported_after_the_preceding_lines(trained: Trained) -> None:
    done = run("translate", trained.folder, text=b"The dog sleeps.\nThe c\xe4t sleeps.\n")
    assert done.returncode == 2
    assert done.stdout.count("\n") == 1
    assert "standard input:2: expected UTF-8" in done.stderr


def test_the_bundle_is_checked_before_the_first_line_is_read(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "clearhead", "translate", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.wait(60) == 2  # standard input is still open


def test_grammar_files(tmp_path: Path) -> None:
    tsv, jsonl = tmp_path / "p.tsv", tmp_path / "p.jsonl"
    assert main(["data", "grammar", "--pairs", "7", "--seed", "3", "--out", str(tsv)]) == 0
    assert main(["data", "grammar", "--pairs", "7", "--seed", "3", "--out", str(jsonl)]) == 0
    records = [json.loads(line) for line in jsonl.read_text(encoding="utf-8").splitlines()]
    assert [f"{record['source']}\t{record['target']}" for record in records] == tsv.read_text().splitlines()
    assert all(record["alignment"] for record in records)
    assert main(["data", "grammar", "--pairs", "7", "--distance", "9-11", "--out", str(jsonl)]) == 0
    distances = [json.loads(line)["pronoun"]["distance"] for line in jsonl.read_text(encoding="utf-8").splitlines()]
    assert all(9 <= distance <= 11 for distance in distances)


def test_every_help_page_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (["train"], ["translate"], ["evaluate"], ["info"], ["data", "grammar"], ["demo"]):
        assert main([*verb, "--help"]) == 0
        assert "Example: clearhead" in capsys.readouterr().out


def test_no_network_connection_is_opened(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    assert clearhead.load(trained.folder).translate("The dog sleeps.").finish_reason
