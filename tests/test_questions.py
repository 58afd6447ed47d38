"""docs/questions.md: its snippets run, its statements hold for another model, and its outputs have the right labels."""

import re
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from benchmarks.questions import PAGE, Snippet, run, snippets, update_outputs

from tests.trained_model import train_small

TEXT = PAGE.read_text(encoding="utf-8")
PAGE_SNIPPETS = snippets(TEXT)
Names = dict[str, Any]


class PageRun:
    """All snippets, run once in order: the output of each, and the namespace after it."""

    def __init__(self) -> None:
        names: Names = {}
        self.outputs: dict[str, str] = {}
        self.names: dict[str, Names] = {}
        for snippet in PAGE_SNIPPETS:
            key = snippet.title.split(".")[0]
            self.outputs[key] = run(snippet, names)
            self.names[key] = dict(names)


@pytest.fixture(scope="module")
def page_run(tmp_path_factory: pytest.TempPathFactory) -> PageRun:
    """Run the page with a model like that of `make demo`, but small and trained for a few updates."""
    folder = tmp_path_factory.mktemp("questions")
    trained = train_small(folder, "--set", "model.positions=rotary", "--set", "model.num_encoder_layers=2", steps=60)
    (folder / "runs").mkdir()
    shutil.move(trained.folder, folder / "runs" / "demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return PageRun()


# Statements that hold for every model, trained or not: question -> statement -> whether it holds.
STATEMENTS: dict[str, list[tuple[str, Callable[[Names], bool]]]] = {
    "Q1": [("other connections by the same parameters", lambda n: np.ptp(n["values_N"]) > 0.2)],
    "Q2": [
        (
            "the steps are those of the model",
            lambda n: abs(n["before_TS"] - n["layer"].weights_HTS[0]).max() < 1e-5,
        ),
        ("minus infinity leaves a sum of 1", lambda n: abs(n["before_TS"].sum(-1) - 1).max() < 1e-5),
        ("a zero afterwards does not", lambda n: n["after_TS"].sum(-1).min() < 0.9),
        ("minus infinity hides the future", lambda n: n["change_before"] < 1e-6),
        ("a zero does not hide it", lambda n: n["change_after"] > 1e-5),
        ("decoding needs no mask", lambda n: n["step_difference"] < 1e-4),
    ],
    "Q3": [
        ("two articles", lambda n: len(n["the"]) == 2),
        ("in layer 0 values are equal", lambda n: _cosines(n, 0)[1].min() > 0.9999),
        ("in layer 0 keys are not", lambda n: _cosines(n, 0)[0].max() < 0.9999),
        ("in layer 1 values are not", lambda n: _cosines(n, 1)[1].max() < 0.9999),
    ],
    "Q4": [
        ("one large, many small", lambda n: n["split_difference"] < 1e-5 and n["model_difference"] < 1e-5),
        ("contributions are added", lambda n: n["sum_difference"] < 1e-4),
        ("a head writes to all dimensions", lambda n: 0 < n["share"] < 0.95),
    ],
    "Q5": [
        ("a product with the table", lambda n: n["difference"] < 1e-3),
        ("tied, and fed back", lambda n: n["is_tied"] and n["is_fed_back"]),
    ],
    "Q6": [
        ("computed by hand", lambda n: n["difference"] < 1e-4),
        ("layer norm is independent of the batch", lambda n: n["layer_norm_change"] < 1e-5),
        ("batch norm is not", lambda n: n["batch_norm_change"] > 0.01),
    ],
    "Q7": [
        ("the difference of two rows", lambda n: n["difference"] < 1e-5),
        (
            "rows beyond the longest text are not trained",
            lambda n: 3 < int((n["change_L"] > 1e-6).sum()) <= n["longest"] < 64,
        ),
    ],
    "Q8": [
        ("computed from the encoder states", lambda n: n["difference"] < 1e-4),
        ("three kinds", lambda n: n["trace"].kinds == ("encoder", "decoder", "cross")),
    ],
    "Q9": [
        ("frequencies decrease", lambda n: _deviations(n) == sorted(_deviations(n), reverse=True)),
        ("by a large factor", lambda n: _deviations(n)[0] > 100 * _deviations(n)[-1]),
    ],
    "Q10": [
        ("one pass for all", lambda n: n["lengths"] == [len(n["score"].tokens) + 1]),
        (
            "one position per pass",
            lambda n: {*n["decoding_lengths"]} == {1} and len(n["decoding_lengths"]) >= len(n["best"].tokens),
        ),
    ],
}


def _cosines(names: Names, layer: int) -> tuple[Any, Any]:
    arithmetic = names["two_articles"].layers("encoder")[layer].arithmetic
    return names["cosine"](arithmetic.k_HSK), names["cosine"](arithmetic.v_HSE)


def _deviations(names: Names) -> list[float]:
    """Return the standard deviations of some printed waves; the fastest of them covers two periods."""
    return [float(names["x_TD"][:, dimension].std()) for dimension in (16, 32, 64, 126)]


def test_every_question_has_a_snippet() -> None:
    titles = [snippet.title for snippet in PAGE_SNIPPETS]
    assert [title.split(".")[0] for title in titles[1:]] == [f"Q{number}" for number in range(1, 11)] == [*STATEMENTS]
    assert TEXT.count("```python") == len(titles), "a snippet without an output below it"


@pytest.mark.parametrize(
    ("question", "statement"), [(name, text) for name, statements in STATEMENTS.items() for text, _ in statements]
)
def test_statements_hold_for_another_model(page_run: PageRun, question: str, statement: str) -> None:
    assert dict(STATEMENTS[question])[statement](page_run.names[question])


def labels(output: str) -> list[str]:
    """Return the text before the colon of each line, without numbers."""
    return [re.sub(r"[0-9][0-9,.e+-]*", "#", line.split(":")[0]) for line in output.splitlines()]


@pytest.mark.parametrize("snippet", PAGE_SNIPPETS, ids=lambda snippet: snippet.title.split(".")[0])
def test_outputs_of_the_page_are_those_of_the_snippets(page_run: PageRun, snippet: Snippet) -> None:
    assert snippet.output.strip(), "no output: make questions"
    actual, shown = labels(page_run.outputs[snippet.title.split(".")[0]]), labels(snippet.output)
    if snippet.title.startswith("Q3"):  # one line per layer, and the models differ in depth
        actual, shown = actual[:2], shown[:2]
    assert actual == shown


def test_update_outputs() -> None:
    page = (
        "# A\n\n```python\nx = 2\nprint(x)\n```\n\n```text\nold\n```\n\n```python\nprint(x + 1)\n```\n\n```text\n```\n"
    )
    assert update_outputs(page).count("old") == 0
    assert [snippet.output for snippet in snippets(update_outputs(page))] == ["2\n", "3\n"]


def test_link_targets_exist() -> None:
    for target, heading in re.findall(r"\]\(([^)#]+)#?([^)]*)\)", TEXT):
        text = (PAGE.parent / target).read_text(encoding="utf-8")
        assert not heading or f"\n### {heading}\n" in text, (target, heading)
