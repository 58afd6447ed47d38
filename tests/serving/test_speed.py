"""Response time of the page for a large model: 6+6 layers, 8 heads, about 200 tokens on both sides.

Times are measured from the event to the drawn frame, including requests to the server. Elapsed time depends on the load
of the machine, so the test checks the processor time of the page's thread and the server.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
import torch

from clearhead.api import Model
from clearhead.config import build
from clearhead.engines.model_weights import ModelWeights
from clearhead.model.registry import build_model
from clearhead.serving.app import make_app
from clearhead.tasks.registry import get_task
from tests.inspection.small_models import TEXT, tokenizer
from tests.serving.browser import Browser
from tests.serving.conftest import DONE, Stage, serving_here

MILLISECONDS = 100
TIMED = """const done = arguments[arguments.length - 1], argument = arguments[0];
    const panel = document.getElementById('panel'), readout = () => document.getElementById('readout')?.textContent;
    const before = [panel.dataset.drawn, readout()], began = performance.now();
    const check = () => {
        if (panel.dataset.drawn !== before[0] || (%(hovers)s && readout() !== before[1]))
            requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
        else setTimeout(check, 1);
    };
    %(act)s; check();"""
HOVER = """const area = document.querySelector('svg.matrix .area'), box = area.getBoundingClientRect();
    area.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: box.left + 3 + 20 * argument,
        clientY: box.top + 5 + 20 * argument}))"""
PICK = HOVER.replace("'pointermove'", "'click'").replace("PointerEvent", "MouseEvent")
PRESS = "document.querySelector(argument).click()"
SORT = "const field = document.querySelector('#sort'); field.value = argument; field.dispatchEvent(new Event('change'))"
# interaction -> tab, script, and its argument in each repetition
ACTIONS: dict[str, tuple[str, str, list[str | int]]] = {
    "hover over a cell": ("attention", HOVER, [1, 2, 3, 4, 5]),
    "select a head": ("attention", PRESS, [f".thumb[data-head-ref='cross.3.{head}']" for head in range(5)]),
    "select a head of another layer": ("attention", PRESS,
                                       [f".thumb[data-head-ref='encoder.{layer}.2']" for layer in range(5)]),
    "select a cell": ("attention", PICK, [1, 2, 3, 4, 5]),
    "sort the grid": ("attention", SORT, ["entropy", "distance", "diagonality", "layer", "entropy"]),
    "hide special tokens": ("attention", PRESS, ["#hide"] * 5),
    "go to the next step": ("steps", PRESS, ["#forward"] * 5),
    "select a block of the map": ("map", "document.querySelector(argument).dispatchEvent(new MouseEvent('click'))",
                                 [f"g.block[data-block='{block}']"
                                  for block in ("encoder", "decoder", "cross", "output")]),
    "select a node of the tree": ("tree", "document.querySelector(argument).dispatchEvent(new MouseEvent('click'))",
                                  [f"g.node[data-node='{node}']" for node in (1, 3, 5, 7, 9)]),
}  # fmt: skip


def large() -> Model:
    words = tokenizer("translate")
    shape = {"model_dim": 64, "feed_forward_dim": 64, "num_heads": 8, "num_encoder_layers": 6, "num_decoder_layers": 6}
    settings = {"model": {**shape, "vocab_size": words.vocab_size}, "decoding": {"max_length": "200"}}
    config = build(settings, base=get_task("translate").base)
    torch.manual_seed(3)
    weights = ModelWeights(config.model, network=build_model(config.model).eval())
    return Model(Path("large"), config, words, weights, None)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def page(session_stage: Stage) -> Iterator[tuple[Browser, str]]:
    """Return a browser, and the address of a trace of 200 tokens by a large model."""
    model = large()
    tokens = model.tokenizer.encode_batch([" ".join([TEXT] * 30)])[0]
    text = model.tokenizer.decode(tokens[:200])
    session_stage.browser.size(1280, 800)
    ticks = {"timeDomain": "threadTicks"}
    session_stage.browser.ask("POST", "/goog/cdp/execute", {"cmd": "Performance.enable", "params": ticks})
    with serving_here(make_app({"large": model})) as url:
        yield session_stage.browser, f"{url}/?text={text}&beam_size=2"
        session_stage.browser.open("about:blank")
        session_stage.browser.hosts()


def work(browser: Browser) -> float:
    """Return the processor time, in seconds, of the page's thread and of this process, which runs the server."""
    metrics = browser.ask("POST", "/goog/cdp/execute", {"cmd": "Performance.getMetrics", "params": {}})["metrics"]
    [page] = [metric["value"] for metric in metrics if metric["name"] == "TaskDuration"]
    return float(page) + time.process_time()


@pytest.mark.slow  # the time depends on the machine
@pytest.mark.parametrize("name", ACTIONS)
def test_interactions_take_less_than_a_tenth_of_a_second(page: tuple[Browser, str], name: str) -> None:
    browser, address = page
    tab, action, arguments = ACTIONS[name]
    browser.open(f"{address}&tab={tab}")
    browser.until(DONE)
    positions = browser.run("return [window.clearhead.trace.source.length, window.clearhead.trace.inputs.length]")
    assert min(positions) > 150 and browser.run("return window.clearhead.trace.heads.length") == 6 * 8 * 3
    script = TIMED % {"hovers": "true" if action == HOVER else "false", "act": action}
    processor_times, elapsed_times = [], []
    for argument in arguments:
        before = work(browser)
        elapsed_times.append(browser.run_async(script, argument))
        processor_times.append(1000 * (work(browser) - before))
    for kind, times in (("work", processor_times), ("clock", elapsed_times)):
        print(
            f"\n{name}, {kind}: {', '.join(f'{duration:.0f}' for duration in times)} ms, median {median(times):.0f}",
            end="",
        )
    assert median(processor_times) < MILLISECONDS
