"""Lines with more tokens than a model accepts: every line gets its output, and stderr reports their number."""

import io
import json
import math

import numpy as np
import pytest

import clearhead
from clearhead.cli.main import main
from clearhead.errors import DecodingError
from tests.tasks.all_tasks import Models
from tests.trained_model import Trained

Run = pytest.CaptureFixture[str]
LONG = "the old dog eats the grass " * 300  # one sentence, longer than any of the models accepts
COMMANDS = [
    ("translate", "translate"), ("denoise", "translate"), ("classify", "classify"), ("tag", "tag"), ("mlm", "embed"),
]  # fmt: skip


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: Run) -> "Runner":
    """Return a runner of commands with text on stdin."""
    return Runner(monkeypatch, capsys)


class Runner:
    """Runner of commands in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: Run) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: object, text: str) -> tuple[list[str], str]:
        """Return the output lines and stderr of a command that succeeds, without the warning of untrained models."""
        self.capsys.readouterr()
        self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        code = main([*map(str, arguments)])
        captured = self.capsys.readouterr()
        assert code == 0, captured.err
        err = [line for line in captured.err.splitlines(keepends=True) if "has not learned its task" not in line]
        return captured.out.splitlines(), "".join(err)


@pytest.mark.parametrize(("task", "command"), COMMANDS)
def test_every_line_gets_its_output(task: str, command: str, models: Models, run: Runner) -> None:
    lines = ["The dog eats.", LONG, "", LONG + "x" * 900, "The cat."]
    folder = models[task]
    together, report = run(command, folder, text="\n".join(lines) + "\n")
    assert len(together) == len(lines)
    assert report.startswith("2 lines have more than") and report.endswith(
        "tokens, the model's limit: split and processed in parts (the first is line 2)\n"
    )
    alone = [run(command, folder, text=line + "\n")[0] for line in lines]
    assert command == "embed" or together == [one[0] for one in alone]
    skipped, report = run(command, folder, "--long-lines", "skip", text="\n".join(lines) + "\n")
    assert skipped[1] == skipped[2] == skipped[3] == "" and skipped[0] and skipped[4]
    assert command == "embed" or (skipped[0], skipped[4]) == (together[0], together[4])
    assert "skipped, with empty output (the first is line 2)" in report


@pytest.mark.parametrize("option", [["--n-best", "2"], ["--prefix", "Der"], ["--include", "Hund"], ["--stream"],
                                    ["--alternatives-at", "0", "--n-best", "2"]])  # fmt: skip
def test_long_lines_are_skipped_where_they_cannot_be_joined(option: list[str], trained: Trained, run: Runner) -> None:
    found, report = run("translate", trained.folder, *option, text=f"The dog.\n{LONG}\nThe cat.\n")
    n_best = 2 if "--n-best" in option else 1
    assert len(found) == 3 * n_best
    assert found[n_best : 2 * n_best] == [""] * n_best and all(found[:n_best]) and all(found[2 * n_best :])
    assert report.endswith("the model's limit: skipped, with empty output (line 2)\n")


def test_a_long_line_is_translated_in_parts(trained: Trained, run: Runner) -> None:
    [line], _ = run("translate", trained.folder, "--json", "--no-split", text=LONG + "\n")
    record, model = json.loads(line), clearhead.load(trained.folder)
    sources, outputs = ([part[name] for part in record["parts"]] for name in ("source", "text"))
    assert len(sources) > 1 and " ".join(sources) == LONG.strip() and record["text"] == " ".join(outputs)
    assert [part["score"] for part in record["parts"]] == pytest.approx(
        [one.score for one in model.translate(sources, split=False)], abs=1e-5
    )
    assert record["log_prob"] == pytest.approx(sum(part["log_prob"] for part in record["parts"]))


def test_the_label_of_a_long_text_is_the_mean_log_probability(models: Models) -> None:
    model = clearhead.load(models["classify"])
    found = model.classify(LONG)
    assert len(found.parts) > 1 and " ".join(part.text for part in found.parts) == LONG.strip()
    means = {
        label: np.mean([math.log(part.classification.probabilities[label]) for part in found.parts])
        for label in ("bad", "good")
    }
    total = sum(math.exp(mean) for mean in means.values())
    assert found.probabilities == pytest.approx({label: math.exp(mean) / total for label, mean in means.items()})
    assert found.to_json()["parts"][0] == {"text": found.parts[0].text, **found.parts[0].classification.to_json()}
    empty = model.classify("")
    assert (empty.label, empty.probabilities) == ("", {})


def test_the_embedding_of_a_long_text_is_the_weighted_mean(models: Models, run: Runner) -> None:
    model = clearhead.load(models["mlm"])
    [found] = model.embed_texts([LONG])
    lengths = np.array([part.tokens + 2 for part in found.parts])  # with the special tokens around each part
    of_parts = np.array(model.embed([part.text for part in found.parts]))
    assert len(lengths) > 1 and model.embed(LONG) == pytest.approx(lengths @ of_parts / lengths.sum(), abs=1e-5)
    unit = model.embed([LONG, "The dog."], unit=True)
    assert np.linalg.norm(unit, axis=1) == pytest.approx(1)
    lines, _ = run("embed", models["mlm"], "--json", text="The dog.\n\n")
    assert json.loads(lines[1]) == {"embedding": None} and len(json.loads(lines[0])["embedding"]) == 12


def test_masks_of_a_long_text_are_filled_in_their_parts(models: Models, run: Runner) -> None:
    folder = models["mlm"]
    text = f"The [MASK] dog eats. {LONG} A [MASK] cat."
    first, last = clearhead.load(folder).fill(text, top=2)
    assert [one.mask for one in (*first, *last)] == [1, 1, 2, 2]
    assert last[0].text.startswith("The [MASK] dog eats.") and last[0].text.endswith("cat.")
    assert last[0].text.count("[MASK]") == 1
    lines, report = run("fill", folder, "--top", "1", text=f"no mask\n{text}\nThe [MASK].\n")
    assert [bool(line) for line in lines] == [False, True, True, False, True]
    assert "1 line has more than 254 tokens" in report and "1 line has no mask" in report
    lists, _ = run("fill", folder, "--top", "1", "--json", text=f"no mask\n{text}\n")
    assert [len(json.loads(line)) for line in lists] == [0, 2]


def test_a_long_prompt_gives_an_empty_text(models: Models, run: Runner) -> None:
    arguments = ["generate", models["lm"], "--lines", "--json", "--max-tokens", "2"]
    lines, report = run(*arguments, text=f"The\n{LONG}\nOld\n")
    records = [json.loads(line) for line in lines]
    assert [record["prompt"] for record in records] == ["The", LONG, "Old"]
    assert records[1]["finish_reason"] == "skipped" and records[1]["text"] == ""
    assert records[0]["text"] and records[2]["text"] and "skipped" in report
    lines, _ = run(*arguments, "--n-best", "2", text=f"The\n{LONG}\nOld\n")
    assert [json.loads(line)["prompt"] for line in lines] == ["The", "The", LONG, LONG, "Old", "Old"]


def test_python_raises_where_a_long_text_cannot_be_split(trained: Trained) -> None:
    model = clearhead.load(trained.folder)
    with pytest.raises(DecodingError, match=r"line 1 has .* tokens, the model accepts 1,023"):
        model.translate(LONG, prefix="Der")
    with pytest.raises(DecodingError, match="line 1 has"):
        model.translate(LONG, long_texts="stop")
    skipped = model.translate(LONG, long_texts="skip")
    assert (skipped.text, skipped.finish_reason) == ("", "skipped")
