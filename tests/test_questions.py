"""docs/questions.md: its snippets run, what they claim is so on any model, and the outputs shown are theirs."""

import re
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from benchmarks.questions import PAGE, Snippet, renewed, run, snippets

from tests.trained_model import train_small

TEXT = PAGE.read_text(encoding="utf-8")
PAGE_SNIPPETS = snippets(TEXT)
Names = dict[str, Any]


class Ran:
    """All snippets, run once in their order: what each printed, and the names right after it."""

    def __init__(self) -> None:
        names: Names = {}
        self.printed: dict[str, str] = {}
        self.names: dict[str, Names] = {}
        for snippet in PAGE_SNIPPETS:
            key = snippet.title.split(".")[0]
            self.printed[key] = run(snippet, names)
            self.names[key] = dict(names)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """On a model as `make demo` makes it, but small and hardly trained."""
    folder = tmp_path_factory.mktemp("questions")
    trained = train_small(folder, "--set", "model.positions=rotary", "--set", "model.num_encoder_layers=2", steps=60)
    (folder / "runs").mkdir()
    shutil.move(trained.folder, folder / "runs" / "demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return Ran()


# What holds for every model, trained or not: question -> what to look at -> whether it is so.
HOLDS: dict[str, list[tuple[str, Callable[[Names], bool]]]] = {
    "Q1": [("other connections by the same parameters", lambda n: np.ptp(n["values_N"]) > 0.2)],
    "Q2": [
        ("the steps are those of the model", lambda n: abs(n["before_TS"] - n["one"].weights_HTS[0]).max() < 1e-5),
        ("minus infinity leaves a sum of 1", lambda n: abs(n["before_TS"].sum(-1) - 1).max() < 1e-5),
        ("a zero afterwards does not", lambda n: n["after_TS"].sum(-1).min() < 0.9),
        ("nothing of the future", lambda n: n["leak_before"] < 1e-6),
        ("a zero lets it in", lambda n: n["leak_after"] > 1e-5),
        ("decoding needs no mask", lambda n: n["steps"] < 1e-4),
    ],
    "Q3": [
        ("two of them", lambda n: len(n["the"]) == 2),
        ("in layer 0 values are equal", lambda n: _cosines(n, 0)[1].min() > 0.9999),
        ("in layer 0 keys are not", lambda n: _cosines(n, 0)[0].max() < 0.9999),
        ("in layer 1 values are not", lambda n: _cosines(n, 1)[1].max() < 0.9999),
    ],
    "Q4": [
        ("one big, many small", lambda n: n["cut"] < 1e-5 and n["same"] < 1e-5),
        ("added up", lambda n: n["added"] < 1e-4),
        ("written everywhere", lambda n: 0 < n["own"] < 0.95),
    ],
    "Q5": [
        ("a product with the table", lambda n: n["difference"] < 1e-3),
        ("tied, and fed back", lambda n: n["is_tied"] and n["is_fed_back"]),
    ],
    "Q6": [
        ("by hand", lambda n: n["difference"] < 1e-4),
        ("alone in any company", lambda n: n["alone"] < 1e-5),
        ("batch norm is not", lambda n: n["in_company"] > 0.01),
    ],
    "Q7": [
        ("the difference of two rows", lambda n: n["off"] < 1e-5),
        ("rows beyond the longest text stay", lambda n: 3 < int((n["moved_L"] > 1e-6).sum()) <= n["longest"] < 64),
    ],
    "Q8": [
        ("from the encoder", lambda n: n["difference"] < 1e-4),
        ("three kinds", lambda n: n["trace"].kinds == ("encoder", "decoder", "cross")),
    ],
    "Q9": [
        ("fast first, then ever slower", lambda n: _spreads(n) == sorted(_spreads(n), reverse=True)),
        ("by far", lambda n: _spreads(n)[0] > 100 * _spreads(n)[-1]),
    ],
    "Q10": [
        ("one pass for all", lambda n: n["lengths"] == [len(n["scored"].tokens) + 1]),
        ("one place a pass", lambda n: {*n["writing"]} == {1} and len(n["writing"]) >= len(n["best"].tokens)),
    ],
}


def _cosines(names: Names, layer: int) -> tuple[Any, Any]:
    made = names["twice"].layers("encoder")[layer].arithmetic
    return names["cosine"](made.k_HSK), names["cosine"](made.v_HSE)


def _spreads(names: Names) -> list[float]:
    """Of the waves that are shown, over so many places that the fastest have turned often."""
    return [float(names["x_TD"][:, dimension].std()) for dimension in (16, 32, 64, 126)]


def test_every_question_is_asked_and_has_a_snippet() -> None:
    titles = [snippet.title for snippet in PAGE_SNIPPETS]
    assert [title.split(".")[0] for title in titles[1:]] == [f"Q{number}" for number in range(1, 11)] == [*HOLDS]
    assert TEXT.count("```python") == len(titles), "a snippet without an output below it"


@pytest.mark.parametrize(("question", "what"), [(name, what) for name, some in HOLDS.items() for what, _ in some])
def test_what_is_said_holds_for_another_model(ran: Ran, question: str, what: str) -> None:
    assert dict(HOLDS[question])[what](ran.names[question])


def labels(printed: str) -> list[str]:
    """What stands before the numbers of each line, numbers and the model's own words left out."""
    return [re.sub(r"[0-9][0-9,.e+-]*", "#", line.split(":")[0]) for line in printed.splitlines()]


@pytest.mark.parametrize("snippet", PAGE_SNIPPETS, ids=lambda one: one.title.split(".")[0])
def test_outputs_shown_are_those_of_the_snippet(ran: Ran, snippet: Snippet) -> None:
    printed = ran.printed[snippet.title.split(".")[0]]
    assert snippet.shown.strip(), "no output: make questions"
    mine, shown = labels(printed), labels(snippet.shown)
    if snippet.title.startswith("Q3"):  # a line for each layer, and the models differ in depth
        mine, shown = mine[:2], shown[:2]
    assert mine == shown


def test_renewing_writes_what_is_printed() -> None:
    page = (
        "# A\n\n```python\nx = 2\nprint(x)\n```\n\n```text\nold\n```\n\n```python\nprint(x + 1)\n```\n\n```text\n```\n"
    )
    assert renewed(page).count("old") == 0
    assert [one.shown for one in snippets(renewed(page))] == ["2\n", "3\n"]


def test_links_lead_somewhere() -> None:
    for target, heading in re.findall(r"\]\(([^)#]+)#?([^)]*)\)", TEXT):
        text = (PAGE.parent / target).read_text(encoding="utf-8")
        assert not heading or f"\n### {heading}\n" in text, (target, heading)
