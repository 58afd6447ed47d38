"""How long a reader of a large model waits: 6+6 layers, 8 heads, about 200 pieces on both sides."""

from pathlib import Path
from statistics import median

import pytest
import torch

from clearhead.api import Model
from clearhead.config import build
from clearhead.model.families import build_model
from clearhead.serving.app import make_app
from clearhead.tasks.purposes import purpose
from tests.inspection.small import TEXT, tokenizer
from tests.serving.conftest import DONE, Stage, serving_here

MILLISECONDS = 100
CHOOSE = """const done = arguments[arguments.length - 1];
    const wanted = document.querySelector(`.thumb[data-part="${arguments[0]}"]`);
    const panel = document.getElementById('panel'), before = panel.dataset.drawn, began = performance.now();
    const check = () => {
        if (panel.dataset.drawn !== before) requestAnimationFrame(() => done(performance.now() - began));
        else setTimeout(check, 1);
    };
    wanted.click(); check();"""


def large() -> Model:
    words = tokenizer("translate")
    shape = {"model_dim": 64, "inner_dim": 64, "num_heads": 8, "num_encoder_layers": 6, "num_decoder_layers": 6}
    settings = {"model": {**shape, "vocab_size": words.vocab_size}, "decoding": {"max_length": "200"}}
    config = build(settings, base=purpose("translate").base)
    torch.manual_seed(3)
    return Model(Path("large"), config, words, build_model(config.model).eval(), None)  # type: ignore[arg-type]


@pytest.mark.slow
def test_choosing_a_head_takes_less_than_a_tenth_of_a_second(stage: Stage) -> None:
    text = " ".join([TEXT] * 30)
    model = large()
    pieces = model.tokenizer.encode_batch([text])[0]
    text = model.tokenizer.decode(pieces[:200])
    with serving_here(make_app({"large": model})) as url:
        browser = stage.browser
        browser.open(f"{url}/?text={text}&beam=1")
        browser.until(DONE)
        places = browser.run("return [window.clearhead.trace.source.length, window.clearhead.trace.inputs.length]")
        assert min(places) > 150
        assert len(browser.data(".thumb", "part")) == 6 * 8 * 3
        times = [browser.run_async(CHOOSE, f"cross.{layer}.{layer}") for layer in range(6)]
        print(f"milliseconds from a click on a head to its picture: {[round(one) for one in times]}")
        browser.screenshot(Path("test-artefacts") / "large.png")
        browser.open("about:blank")
        stage.browser.hosts()
    assert median(times) < MILLISECONDS
