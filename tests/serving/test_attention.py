"""The panel Attention in Chromium, compared with the library: all heads, one head and the arithmetic of one weight."""

import json
import re
from pathlib import Path

import pytest

from clearhead.inspection.analyses.ablation import ablation_effect
from clearhead.inspection.analyses.head_statistics import head_statistics
from tests.serving.conftest import Stage

SHOTS = Path("test-artefacts")


def test_every_head_shows_the_weights_of_the_trace(stage: Stage) -> None:
    browser = stage.open()
    head_refs = browser.data(".thumb", "headRef")
    assert head_refs == [
        f"{attention.kind}.{attention.layer}.{head}" for attention in stage.trace.attention for head in range(2)
    ]
    for head_ref in head_refs:
        kind, layer, head = head_ref.split(".")
        browser.click(f".thumb[data-head-ref='{head_ref}']")
        browser.until("document.querySelector('#head-title').textContent.includes(arguments[0])", f"head {head}")
        browser.until(f"location.search.includes('kind={kind}') || {json.dumps(kind)} === 'cross'")
        drawn = browser.until(
            "document.querySelector('svg.matrix').getAttribute('aria-label').includes(arguments[0]) && "
            "document.querySelector('#readout').textContent",
            {"encoder": "Encoder self", "decoder": "Masked", "cross": "Encoder-decoder"}[kind],
        )
        weights = stage.trace.weights(kind, int(layer), int(head))  # type: ignore[arg-type]
        is_special = [position.is_special for position in stage.trace.key_positions(kind)]  # type: ignore[arg-type]
        assert float(drawn.split(": ")[-1]) == pytest.approx(
            weights[:, [not is_special_key for is_special_key in is_special]].max(), abs=1e-6
        )


def test_hovering_shows_the_exact_weight_or_masked(stage: Stage) -> None:
    browser = stage.open(kind="decoder", layer="0", head="1", view="matrix")
    hover = """const area = document.querySelector('svg.matrix .area'), box = area.getBoundingClientRect();
        const [t, s, rows, columns] = arguments;
        area.dispatchEvent(new PointerEvent('pointermove', {bubbles: true,
            clientX: box.left + (s + .5) * box.width / columns, clientY: box.top + (t + .5) * box.height / rows}));
        return document.querySelector('#readout').textContent"""
    weights = stage.trace.weights("decoder", 0, 1)
    rows, columns = weights.shape
    for t, s in ((3, 1), (5, 5), (7, 2)):
        assert float(browser.run(hover, t, s, rows, columns).split(": ")[-1]) == pytest.approx(weights[t, s], abs=1e-6)
    assert "masked" in browser.run(hover, 1, 4, rows, columns)


def test_hiding_special_tokens_renormalises_the_rows(stage: Stage) -> None:
    browser = stage.open(kind="cross", layer="0", head="0", view="matrix")
    browser.click("#hide")
    browser.until("document.querySelector('#grid .note')")
    assert "renormalised" in browser.text("#grid .note")
    browser.until("document.querySelector('#readout').textContent.includes('renormalised')")
    weights = stage.trace.weights("cross", 0, 0)
    kept_columns = [number for number, position in enumerate(stage.trace.source) if not position.is_special]
    renormalized = weights[:, kept_columns] / weights[:, kept_columns].sum(1, keepdims=True)
    value = float(re.findall(r": ([0-9.]+) ", browser.text("#readout"))[0])
    row, column = divmod(int(weights[:, kept_columns].argmax()), len(kept_columns))
    assert value == pytest.approx(renormalized[row, column], abs=1e-5)


def test_arithmetic_is_checked_against_the_tensor(stage: Stage) -> None:
    for kind, layer, head, row, column in (("encoder", 0, 1, 2, 3), ("decoder", 0, 0, 4, 2), ("cross", 0, 1, 1, 8)):
        state = {"kind": kind, "layer": str(layer), "head": str(head), "row": str(row), "column": str(column)}
        browser = stage.open(**state)
        browser.until("document.querySelector('#check.ok')")
        computed, displayed = browser.run(
            "const check = document.querySelector('#check'); return [check.dataset.computed, check.dataset.model]"
        )
        weight = float(stage.trace.weights(kind, layer, head)[row, column])  # type: ignore[arg-type]
        assert float(displayed) == pytest.approx(weight, abs=1e-7)
        assert float(computed) == pytest.approx(weight, abs=1e-5)
    browser.run("document.querySelector('#arithmetic').scrollIntoView()")
    browser.screenshot(SHOTS / "arithmetic.png")


@pytest.mark.parametrize("measure", ["entropy", "distance", "diagonality", "effect"])
def test_the_grid_is_sorted_by_a_measure(stage: Stage, measure: str) -> None:
    browser = stage.open()
    browser.choose("#sort", measure)
    browser.until("document.querySelector('.thumbs.flat')")
    expected = {str(value.head_ref): getattr(value, measure, None) for value in head_statistics(stage.trace)}
    if measure == "effect":
        settings = stage.model.decoding()
        expected = {
            head_ref: ablation_effect(
                stage.model, stage.model.with_ablated([head_ref]), stage.trace, settings
            ).log_prob_change
            for head_ref in expected
        }
    head_refs, captions = browser.data(".thumb", "headRef"), browser.texts(".thumb span:nth-of-type(2)")
    assert sorted(head_refs) == sorted(expected)
    values = [expected[head_ref] for head_ref in head_refs]
    assert [float(value.replace("−", "-")) for value in captions] == pytest.approx(values, abs=0.0051)
    ordered = sorted((value for value in values if value is not None), reverse=measure == "diagonality")
    assert values == pytest.approx(ordered, abs=1e-4)


def test_masked_cells_are_hatched(stage: Stage) -> None:
    """Masked cells are transparent over a hatching; weights near zero are painted."""
    browser = stage.open(kind="decoder", layer="0", head="0", view="matrix")
    rows = len(stage.trace.inputs)
    drawn = browser.run_async("""const done = arguments[arguments.length - 1], image = new Image();
        image.src = document.querySelector('svg.matrix image').getAttribute('href');
        image.decode().then(() => {
            const {width, height} = image, canvas = Object.assign(document.createElement('canvas'), {width, height});
            const context = canvas.getContext('2d');
            context.drawImage(image, 0, 0);
            done([...context.getImageData(0, 0, width, height).data].filter((_, at) => at % 4 === 3)); })""")
    small = browser.run("""const canvas = document.querySelector(".thumb[data-head-ref='decoder.0.0'] canvas");
        const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return [...data].filter((_, at) => at % 4 === 3)""")
    allowed = [255 * int(s <= t) for t in range(rows) for s in range(rows)]
    assert drawn == allowed and small == allowed
    assert (
        browser.run("""const back = document.querySelector('svg.matrix > rect').getAttribute('fill');
        return document.querySelector(back.slice(4, -1)).tagName""")
        == "pattern"
    )
    assert "gradient" in browser.run("return getComputedStyle(document.querySelector('.thumb canvas')).backgroundImage")


def test_layers_and_heads_are_counted_from_0(stage: Stage) -> None:
    """Each stack of the model has one layer of two heads: layer 0, heads 0 and 1."""
    words = """return [...document.querySelectorAll('#panel *')].flatMap((element) => [element.ariaLabel, element.title,
        ...[...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data)]).join(' | ')"""
    options = {"whatif": {"whatif": "cross.0.1", "all_heads": "1"}, "compare": {"second_model": "pronouns-2"}}
    numbers_by_word: dict[str, set[str]] = {"layer": set(), "head": set(), "L": set()}
    for tab in ("attention", "steps", "whatif", "map", "lens", "compare"):
        text = stage.open(tab=tab, kind="cross", layer="0", head="1", **options.get(tab, {})).run(words)
        for name, numbers in numbers_by_word.items():
            numbers |= set(re.findall(rf"\b{name} ?(\d+)", text))
        assert ("layer 0" in text and ("head 1" in text or tab == "lens")) or tab == "map", tab
    assert numbers_by_word == {"layer": {"0"}, "head": {"0", "1"}, "L": {"0"}}
    assert stage.browser.texts("#panel h3")  # the last panel was drawn
