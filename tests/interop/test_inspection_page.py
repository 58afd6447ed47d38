"""Imported models on the inspection page: it shows every head with the values of `model.trace`."""

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import clearhead
from clearhead.api import Model
from clearhead.cli.main import main
from clearhead.serving.app import make_app
from tests.interop.folders import BERT_TOKENS, bert_tokenizer, hf, save, with_random_weights
from tests.interop.test_real_weights import minilm  # noqa: F401  a fixture
from tests.serving.browser import Browser, browsing, need_browser, serving
from tests.serving.conftest import DONE, serving_here

pytestmark = pytest.mark.slow  # a browser

SHOTS = Path("test-artefacts")
EMBEDS = ["Attention", "Architecture", "Positions", "Compare"]
ANSWERS = ["Answer", "Attention", "What if", "Architecture", "Positions", "Lens & attribution", "Compare"]


def tune(folder: Path) -> Model:
    """Fine-tune the model in `folder/clearhead` for two updates to classify sentences; return it."""
    lines = [
        f"{'the big dog' if n % 2 else 'a small cat'} {'runs ' * (n % 3)}\t{'dog' if n % 2 else 'cat'}"
        for n in range(30)
    ]
    (folder / "data.tsv").write_text("\n".join(lines) + "\n")
    arguments = ["train", str(folder / "data.tsv"), "--task", "classify", "--from", str(folder / "clearhead")]
    assert main([*arguments, "--out", str(folder / "tuned"), "--steps", "2", "--threads", "1"]) == 0
    return clearhead.load(folder / "tuned")


def check_page(
    browser: Browser, url: str, model: Model, text: str, tabs: list[str], heads: list[tuple[int, int]]
) -> None:
    """Check that all heads are shown, and cells of some heads that are selected by the address."""
    trace, name = model.trace(text), model.folder.name
    config = model.config.model

    def show(**state: Any) -> None:
        browser.open(f"{url}/?{urlencode({'model': name, 'text': text, 'tab': 'attention', **state})}")
        browser.until(DONE)

    show()
    assert browser.texts("#tabs button") == tabs
    layers, count = range(config.num_encoder_layers), range(config.num_heads)
    assert browser.data(".thumb", "headRef") == [f"encoder.{layer}.{head}" for layer in layers for head in count]
    assert browser.text("#output") == (trace.target_text or "(a vector, no text)")
    texts = [position.text for position in trace.source]
    assert browser.run("return window.clearhead.trace.source.map(one => one.text)") == texts
    for layer, head in heads:
        row, column = (layer + head) % len(texts), (2 * layer + head) % len(texts)
        show(kind="encoder", layer=layer, head=head, row=row, column=column, view="matrix")
        readout = browser.text("#readout")
        assert float(readout.split(": ")[-1]) == pytest.approx(
            trace.weights("encoder", layer, head)[row, column], abs=1e-6
        )
    for panel in browser.data("#tabs button", "panel"):
        show(tab=panel)
        assert browser.text("#panel").strip() and browser.text("#problem") == "", panel
    if trace.outputs:
        show(tab="answer")
        options = sorted(((option.text, option.log_prob) for option in trace.candidates[0]), key=lambda one: -one[1])
        assert browser.texts("#panel .bars > span:nth-child(3n+1)") == [text for text, _ in options]


def test_a_small_bert(tmp_path: Path) -> None:
    need_browser()
    sizes = {"hidden_size": 22, "num_hidden_layers": 3, "num_attention_heads": 11, "intermediate_size": 17}
    config = hf.BertConfig(vocab_size=len(BERT_TOKENS), **sizes, max_position_embeddings=19)
    bert_tokenizer(save(with_random_weights(hf.BertModel(config)), tmp_path / "huggingface"))
    assert main(["import", str(tmp_path / "huggingface"), "--out", str(tmp_path / "clearhead")]) == 0
    model, tuned = clearhead.load(tmp_path / "clearhead"), tune(tmp_path)
    text = "the small dog runs , eating"
    with serving_here(make_app({"clearhead": model, "tuned": tuned})) as url, browsing(tmp_path / "profile") as browser:
        check_page(browser, url, model, text, EMBEDS, [(0, 0), (1, 7), (2, 10)])
        check_page(browser, url, tuned, text, ANSWERS, [(0, 10), (2, 3)])
        assert browser.console() == []


def test_minilm_as_imported_and_as_fine_tuned(minilm: tuple[Path, Path], tmp_path: Path) -> None:  # noqa: F811
    need_browser()
    (tmp_path / "clearhead").symlink_to(minilm[1])
    model, tuned = clearhead.load(tmp_path / "clearhead"), tune(tmp_path)
    text = "The animal did not cross the street because it was too tired."
    with serving(model.folder, tuned.folder) as url, browsing(tmp_path / "profile") as browser:
        check_page(browser, url, model, text, EMBEDS, [(layer, (5 * layer + 1) % 12) for layer in range(6)])
        browser.screenshot(SHOTS / "minilm.png")
        check_page(browser, url, tuned, text, ANSWERS, [(layer, (7 * layer + 2) % 12) for layer in range(6)])
        browser.screenshot(SHOTS / "minilm-tuned.png")
        assert browser.console() == []
